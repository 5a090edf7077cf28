"""The random streams: what a random choice is for, as part of its key.

A random choice is a pure function of a key (`rehead.text.order`): the seed, the stream, and what tells one choice of a
stream from another, such as an epoch or a document. Streams with different values give unrelated
numbers. A value may not change: a run that is resumed, or repeated with its seed, must draw what it drew before.

Five values (0, 1, 7, 21, 71) have two names. That does no harm: the two streams belong to different commands, or their
keys have different lengths. A new stream takes a value of its own.
"""

from __future__ import annotations

from enum import IntEnum


class Stream(IntEnum):
    """One member for every kind of random choice."""

    # rehead/text: batches and parts of a corpus
    ROW_ORDER = 0  # the order of the rows of an epoch
    ROW_START = 1  # where the corpus, a ring, is opened in an epoch
    BATCH_ORDER = 0  # the order of an epoch's batches of whole documents (fine-tuning; rows are for pretraining)
    BATCH_MEMBERS = 1  # which documents of a bucket share a batch
    HELD_OUT = 2  # which documents of a corpus are held out for validation

    # rehead/training
    DROPOUT = 3  # torch's generator in one part of a step

    # rehead/pretrain: objectives on rows
    VALIDATION_ROWS = 4  # takes the place of the seed where held-out rows are masked
    MASKED_PLACE = 5  # which tokens are chosen for masking
    MASKED_HOW = 6  # whether a chosen token becomes the mask, a random token, or stays
    MASKED_TOKEN = 7  # the random token
    ROW_DIRECTION = 8  # which rows the hybrid objective reads causally
    NEXT_SENTENCE = 9  # whether the second sentence of a pair follows the first
    PAIR_CUT = 10  # where a row is cut into two sentences
    PAIR_OTHER = 11  # which row a second sentence that does not follow comes from

    # rehead/pretrain: n-grams and documents
    NGRAM_COUNT = 20  # the sample of documents whose n-grams are counted
    DOCUMENT_ORDER = 21  # the order of the documents of an epoch
    STATISTICS_SAMPLE = 21  # the documents that the statistics of a base are measured on: (seed, stream) is its key
    CANDIDATES = 22  # the n-grams that a step's documents are told from
    TARGETS = 23  # the n-grams of a document that are its targets
    DOCUMENT_STRETCH = 24  # the stretch of a document that layers read
    DOCUMENT_CUT = 25  # the stretch of a very long document that takes part at all
    OUTPUT_TABLE = 26  # the initial output table of the document objective
    VALIDATION_DOCUMENTS = 27  # takes the place of the seed where targets of held-out documents are chosen

    # rehead/finetune
    UNLABELLED = 31  # the sample of unlabelled documents for self-training
    SPLIT = 41  # which examples are split off for validation
    FOLD = 42  # which fold of a cross-validation an example is in
    FEW_LABELS = 43  # which examples are drawn where only some labels are used
    EXAMPLE_ORDER = 51  # the order of the examples of an epoch
    LINEAR_START = 61  # the examples, and their folds, that a linear start is chosen on
    UNLABELLED_TEXTS = 71  # the sample of unlabelled texts read from files (reservoir sampling)

    # rehead/compare
    SHUFFLED_LABELS = 71  # the control with shuffled labels: (seed, stream) is its key

    # rehead/use
    GENERATION = 7  # the sampled tokens of generated text
