"""Registry of the ids of random streams.

A random choice is a pure function of a key (`rehead.text.order`): the seed, the stream id, and what distinguishes the
choices of a stream, such as an epoch or a document. Different stream ids give independent numbers. An id must never
change: a run that is resumed, or repeated with the same seed, must draw the same numbers.

Five ids (0, 1, 7, 21, 71) have two names. That is harmless: the two streams belong to different commands, or their keys
have different lengths. A new stream gets a new id.
"""

from __future__ import annotations

from enum import IntEnum


class Stream(IntEnum):
    """Ids of the random streams, one for each kind of random choice."""

    # rehead/text: batches and subsets of a corpus
    ROW_ORDER = 0  # the order of the packed rows in an epoch
    ROW_START = 1  # the offset in the corpus, a ring, at which an epoch starts
    BATCH_ORDER = 0  # the order of the batches of whole documents in an epoch (fine-tuning; rows are for pretraining)
    BATCH_MEMBERS = 1  # which documents of a bucket share a batch
    HELD_OUT = 2  # which documents of a corpus are held out for validation

    # rehead/training
    DROPOUT = 3  # seed of torch's generator for one part of a step

    # rehead/pretrain: objectives on packed rows
    VALIDATION_ROWS = 4  # used instead of the seed for masking held-out rows
    MASKED_PLACE = 5  # which tokens are selected for masking
    MASKED_HOW = 6  # whether a selected token is replaced by the mask, by a random token, or kept
    MASKED_TOKEN = 7  # the random token
    ROW_DIRECTION = 8  # which rows of the hybrid objective are causal
    NEXT_SENTENCE = 9  # whether the second sentence of a pair follows the first
    PAIR_CUT = 10  # where a row is cut into two sentences
    PAIR_OTHER = 11  # which row a second sentence that does not follow comes from

    # rehead/pretrain: n-grams and documents
    NGRAM_COUNT = 20  # the sample of documents whose n-grams are counted
    DOCUMENT_ORDER = 21  # the order of the documents of an epoch
    STATISTICS_SAMPLE = 21  # the documents that the statistics of a base are measured on: (seed, stream) is its key
    CANDIDATES = 22  # the sampled candidates of a step (sampled softmax)
    TARGETS = 23  # the n-grams of a document that are its targets
    DOCUMENT_STRETCH = 24  # the span of a document that the layers read
    DOCUMENT_CUT = 25  # the span that is used of a very long document
    OUTPUT_TABLE = 26  # the initial output embeddings of the document objective
    PROJECTION = 29  # the axes that brought vectors of fewer values are projected on
    VALIDATION_DOCUMENTS = 27  # used instead of the seed for the targets of held-out documents

    # rehead/pretrain/adapting: bases that others pretrained
    CONTRAST_ORDER = 81  # the order of the texts of an epoch
    CONTRAST_PARTNER = 82  # which of its neighbours a text is pulled to
    CONTRAST_SAMPLE = 83  # which texts of a long corpus are used
    CONTRAST_DELETED = 84  # which tokens are deleted from the copy of a text
    VALIDATION_CONTRAST = 85  # used instead of the seed for copies of held-out texts

    # rehead/finetune
    UNLABELLED = 31  # the sample of unlabelled documents for self-training
    SPLIT = 41  # which examples are in the validation set
    FOLD = 42  # the cross-validation fold of an example
    FEW_LABELS = 43  # the subset of the examples where only some labels are used
    EXAMPLE_ORDER = 51  # the order of the examples in an epoch
    LINEAR_START = 61  # the examples, and their folds, for choosing the linear start
    UNLABELLED_TEXTS = 71  # the sample of unlabelled texts read from files (reservoir sampling)

    # rehead/compare
    SHUFFLED_LABELS = 71  # the control with shuffled labels: (seed, stream) is its key

    # rehead/use
    GENERATION = 7  # the sampled tokens of generated text
