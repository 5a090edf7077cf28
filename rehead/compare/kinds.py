"""The methods that are compared, with their titles and descriptions. Nothing heavy is imported here."""

from __future__ import annotations

from typing import Literal

Kind = Literal["scratch", "pretrained", "frozen", "recipe", "tfidf", "tfidf_chars", "nbsvm", "fasttext"]
BASELINES: tuple[Kind, ...] = ("tfidf", "tfidf_chars", "nbsvm", "fasttext")
OPTIONAL: tuple[Kind, ...] = ("fasttext",)  # needs a package of its own, so it is compared if asked for only
UNLABELLED = 30_000  # maximum number of unlabelled documents of the default recipe: it is trained many times

TITLES: dict[Kind, str] = {
    "scratch": "from scratch",
    "pretrained": "pretrained, fine-tuned",
    "frozen": "pretrained, frozen + linear head",
    "recipe": "default recipe",
    "tfidf": "TF-IDF + logistic regression",
    "tfidf_chars": "TF-IDF, words and characters",
    "nbsvm": "NB-SVM",
    "fasttext": "fastText",
}
DESCRIPTIONS: dict[Kind, str] = {
    "scratch": "the same network trained from random weights, with the same labels and epochs as the pretrained one.",
    "pretrained": "the head is replaced and the whole network fine-tuned; the validation set selects the best epoch.",
    "frozen": "only a linear head is trained, on the document vectors of the frozen pretrained base.",
    "recipe": "what rehead finetune does by default, selected by cross-validation on the training labels. "
    f"Self-training uses at most {UNLABELLED:,} unlabelled documents here; rehead finetune uses more.",
    "tfidf": "TF-IDF of unigrams and bigrams, logistic regression; C is selected by cross-validation.",
    "tfidf_chars": "TF-IDF of words and bigrams beside TF-IDF of character n-grams (2 to 5, within word boundaries), "
    "logistic regression; C is selected by cross-validation.",
    "nbsvm": "naive-Bayes log-count ratios of unigrams and bigrams, linear support vector machine; C is selected by "
    "cross-validation.",
    "fasttext": "fastText's supervised classifier: averaged vectors of words, bigrams and character n-grams, trained "
    "from scratch; epochs and character n-grams are selected by cross-validation.",
}
