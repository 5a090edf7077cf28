"""The ways to a classifier that are compared. Nothing heavy is imported here."""

from __future__ import annotations

from typing import Literal

Kind = Literal["scratch", "pretrained", "frozen", "recipe", "tfidf", "nbsvm"]
BASELINES: tuple[Kind, ...] = ("tfidf", "nbsvm")
UNLABELLED = 10_000  # documents without labels that the default recipe learns from, since many trainings do

TITLES: dict[Kind, str] = {
    "scratch": "from scratch",
    "pretrained": "pretrained, fine-tuned",
    "frozen": "pretrained, frozen + linear head",
    "recipe": "default recipe",
    "tfidf": "TF-IDF + logistic regression",
    "nbsvm": "NB-SVM",
}
ABOUT: dict[Kind, str] = {
    "scratch": "the same network from random weights, trained like the pretrained one: same labels, same epochs.",
    "pretrained": "the head is replaced, and the network trained on; the best epoch is chosen on validation labels.",
    "frozen": "only a linear head on the pretrained document vectors is trained.",
    "recipe": "what rehead finetune does unless told otherwise; it chooses by cross-validation on its labels. Of "
    f"unlabelled text it reads {UNLABELLED:,} documents at most, where rehead finetune reads more.",
    "tfidf": "words and pairs of words; the penalty is chosen by cross-validation.",
    "nbsvm": "naive-Bayes log-count ratios of words and pairs of words, linear support vector machine; the penalty is "
    "chosen by cross-validation.",
}
