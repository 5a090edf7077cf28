"""Responses, compared with those of the classifier itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from rehead.errors import UserError
from rehead.runs.run import Run
from rehead.use.explain import explain
from rehead.use.generate import generate_samples, prompt_ids
from rehead.use.labeller import Labeller
from rehead.use.sampling import Sampling
from rehead.use.serve.options import ServeOptions
from rehead.use.serve.service import Service
from tests.use.serve.running import TEXTS, Running, classifier, running, writer


def expected(run: Run, texts: list[str]) -> list[dict[str, object]]:
    labeller = Labeller.of(run)
    given = labeller.probabilities(texts)
    key = "labels" if labeller.multilabel else "label"
    return [
        {
            key: list(labels or []) if labeller.multilabel else (labels or [""])[0],
            "probabilities": pytest.approx(dict(zip(labeller.names, row.tolist(), strict=True)), abs=2e-6),
        }
        if text
        else {key: None, "probabilities": None}
        for text, labels, row in zip(texts, labeller.labels(given), given, strict=True)
    ]


def test_labels_are_those_of_the_classifier(server: Running) -> None:
    assert server.post("/classify", {"texts": TEXTS}) == (200, {"results": expected(classifier(), TEXTS)})
    for text in TEXTS:
        assert server.post("/classify", {"text": text}) == (200, {"results": expected(classifier(), [text])})


def test_blank_texts_have_no_label(server: Running) -> None:
    nothing = {"label": None, "probabilities": None}
    assert server.post("/classify", {"text": " \n\t\u3000"}) == (200, {"results": [nothing]})
    assert server.post("/classify", {"texts": ["", " "], "threshold": 0.5}) == (200, {"results": [nothing] * 2})
    known = expected(classifier(), ["a good film"])
    found = server.post("/classify", {"texts": ["", "a good film", " "], "threshold": 0.01})
    assert found == (200, {"results": [nothing, *known, nothing]})
    for asked in ({"text": " "}, {"text": "", "label": "fair"}):
        assert server.post("/explain", asked) == (200, {"label": None, "probability": None, "words": [], "total": 0})


def test_several_labels() -> None:
    run = classifier(multilabel=True)
    with running(run) as server:
        assert server.post("/classify", {"texts": TEXTS}) == (200, {"results": expected(run, TEXTS)})
        sure = server.post("/classify", {"texts": TEXTS, "threshold": 1.0})[1]["results"]
        assert [each["labels"] for each in sure] == [None] * len(TEXTS)
        schema = server.get("/openapi.json")[1]
        assert "MultilabelClassifyResponse" in schema["components"]["schemas"]


def test_less_sure_than_asked_is_no_label(server: Running) -> None:
    labeller = Labeller.of(classifier())
    sure = labeller.probabilities(TEXTS[:-1]).max(1)
    threshold = float(np.sort(sure)[2])  # two of four are as sure, or surer
    found = server.post("/classify", {"texts": TEXTS[:-1], "threshold": threshold})[1]["results"]
    assert [each["label"] is not None for each in found] == [bool(each >= threshold) for each in sure]


@pytest.mark.parametrize("name", ["bag", "lab"])
def test_explanations_are_those_of_explain(name: str, server: Running, layered: Running) -> None:
    text, labeller = "a good film 🎬, not a bad one", Labeller.of(classifier(name))
    asked = {"bag": server, "lab": layered}[name]
    for label in (None, "fair"):
        mine = explain(labeller, [text], label=label)[0]
        status, found = asked.post("/explain", {"text": text} if label is None else {"text": text, "label": label})
        assert status == 200
        assert (found["label"], found["probability"]) == (mine.label, pytest.approx(mine.probability, abs=2e-6))
        places = [(each["begin"], each["end"]) for each in found["words"]]
        assert places == [(each.begin, each.end) for each in mine.words]
        assert [each["weight"] for each in found["words"]] == pytest.approx(
            [each.weight for each in mine.words], abs=1e-5
        )


def test_labels_that_there_are_not_cannot_be_explained(server: Running) -> None:
    status, body = server.post("/explain", {"text": "a", "label": "nonsense"})
    assert (status, list(body)) == (422, ["error"])
    assert body["error"].startswith("label: ")


def test_attention_is_that_of_the_layer_and_head(layered: Running) -> None:
    run, text = classifier("lab"), "a good film, a bad book"
    assert run.tokenizer is not None
    ids = run.tokenizer.encode(text)
    with torch.no_grad():
        _, layers = run.model.base.attention(torch.tensor([ids]), causal=run.model.reads_causally)
    for layer, head in ((1, 2), (2, 1)):
        status, found = layered.post("/attention", {"text": text, "layer": layer, "head": head})
        assert status == 200
        assert found["tokens"] == run.tokenizer.readable(ids)
        assert found["total"] == len(ids)
        assert found["causal"] == run.model.reads_causally
        assert np.allclose(found["weights"], layers[layer - 1][0, head - 1], atol=1e-4)
    mean = layered.post("/attention", {"text": text, "layer": 2})[1]["weights"]
    assert np.allclose(mean, layers[1][0].mean(0), atol=1e-4)


def test_attention_is_shown_of_the_beginning_only(layered: Running) -> None:
    found = layered.post("/attention", {"text": "a good film " * 200})[1]
    assert len(found["tokens"]) == len(found["weights"]) == 64
    assert found["total"] > 500
    assert layered.post("/attention", {"text": ""})[1]["weights"] == []


def test_no_layers_no_attention(server: Running) -> None:
    assert "attention" not in server.get("/about")[1]["can"]
    assert server.post("/attention", {"text": "a"})[0] == 404


def test_text_is_written_as_rehead_generate_does(writing: Running) -> None:
    run = writer()
    assert run.tokenizer is not None
    asked = {"prompt": "a good", "tokens": 12, "temperature": 0.7, "top_k": 20, "top_p": 0.9, "seed": 5}
    status, found = writing.post("/generate", asked)
    sampling = Sampling(temperature=0.7, top_k=20, top_p=0.9)
    mine = generate_samples(run.model, run.tokenizer, prompt_ids(run.tokenizer, "a good"), sampling, tokens=12, seed=5)[
        0
    ]
    assert (status, found) == (200, {"text": mine.text, "tokens": len(mine.ids), "ended": mine.ended})
    assert writing.post("/generate", {})[0] == 200


def test_seeds_are_whole_numbers_that_every_reader_of_json_has(writing: Running) -> None:
    assert writing.post("/generate", {"seed": 2**53 - 1})[0] == 200
    assert writing.post("/generate", {"seed": 2**53})[0] == 422


def test_a_run_that_writes_offers_that_alone(writing: Running) -> None:
    about = writing.get("/about")[1]
    assert about["can"] == ["generate"]
    assert writing.post("/classify", {"text": "a"})[0] == 404


def test_a_run_that_can_do_nothing_is_refused() -> None:
    run = writer()
    masked = Run(run.model, run.tokenizer, details={"objective": "masked"})
    with pytest.raises(UserError, match=r"^it was not trained to continue .* not a classifier: its objective"):
        Service(masked, ServeOptions(run=Path("it")), name="it")


def test_about_says_what_it_takes(server: Running) -> None:
    about = server.get("/about")[1]
    assert about["labels"] == ["bad", "fair", "good <b>"]
    assert about["limits"]["characters"] == 1000
    assert about["limits"]["texts"] == 8


def test_probes(server: Running) -> None:
    assert server.get("/healthz") == (200, {"status": "ok"})
    assert server.get("/readyz") == (200, {"status": "ready"})


def test_head_is_get_without_a_body(server: Running) -> None:
    for path in ("/", "/healthz", "/readyz", "/about", "/docs"):
        status, body, headers = server.ask("HEAD", path)
        assert (status, body) == (200, "")
        assert headers["content-length"] == server.ask("GET", path)[2]["content-length"]
    assert server.ask("HEAD", "/classify")[0] == 405
    assert server.ask("HEAD", "/nothing")[0] == 404
    assert server.ask("PUT", "/healthz")[2]["allow"] == "GET, HEAD"


def test_a_dead_thread_is_not_ready() -> None:
    with running(classifier()) as server:
        server.service.slow_worker.close(5)
        assert server.get("/readyz") == (503, {"status": "ending"})
        assert server.get("/healthz")[0] == 200


def test_requests_and_texts_are_counted() -> None:
    with running(classifier()) as server:
        server.post("/classify", {"texts": ["a", "b", "c"]})
        server.post("/classify", {"text": 3})
        server.get("/a/secret/path")
        counts = server.get("/metrics")[1]
    assert 'rehead_requests_total{path="/classify",status="200"} 1.0' in counts
    assert 'rehead_requests_total{path="/classify",status="422"} 1.0' in counts
    assert 'rehead_requests_total{path="(other)",status="404"} 1.0' in counts
    assert "rehead_texts_total 3.0" in counts
    assert "rehead_batch_texts_count 1.0" in counts
    assert 'rehead_waiting{lane="labels"} 0.0' in counts
    assert "secret" not in counts


def test_errors_are_all_of_one_kind(server: Running) -> None:
    status, body = server.get("/nothing")
    assert (status, list(body)) == (404, ["error"])
    status, body, headers = server.ask("GET", "/classify")
    assert (status, list(body)) == (405, ["error"])
    assert headers["allow"] == "POST"


def test_documentation_loads_nothing_from_anywhere(server: Running) -> None:
    status, page, headers = server.ask("GET", "/docs")
    assert status == 200
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page
    for path in server.get("/openapi.json")[1]["paths"]:
        assert path in page


def test_the_schema_says_the_limits(server: Running) -> None:
    schema = server.get("/openapi.json")[1]
    fields = schema["paths"]["/classify"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert fields["text"]["maxLength"] == 1000
    assert fields["texts"]["maxItems"] == 8
    assert "default" not in fields["text"]
    assert json.dumps(schema)


def test_a_failure_is_one_line_for_the_client_and_a_place_for_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with running(classifier()) as server:

        def broken(texts: list[str]) -> None:
            if "poison" in texts:
                raise ValueError("my secret text is " + texts[0])

        real = server.service.labeller.probabilities  # type: ignore[union-attr]
        server.service.labeller.probabilities = lambda texts: broken(texts) or real(texts)  # type: ignore
        status, body = server.post("/classify", {"text": "poison"})
        assert (status, list(body)) == (500, ["error"])
        assert "poison" not in body["error"]
        assert server.post("/classify", {"text": "fine"})[0] == 200
    assert "secret" not in caplog.text
    assert caplog.text.count("internal error: ValueError at") == 1


def test_a_classifier_on_an_encoder_that_others_pretrained(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from rehead.finetune.fit import fit_classifier
    from rehead.finetune.options import FitOptions
    from rehead.runs.run import bring
    from tests.bases.tiny import make_encoder
    from tests.finetune.sets import reviews

    base = bring(make_encoder(tmp_path / "tiny"))
    run = fit_classifier(reviews(30), None, base=base, options=FitOptions(freeze="base")).run
    with running(run) as server:
        assert server.post("/classify", {"texts": TEXTS}) == (200, {"results": expected(run, TEXTS)})
        status, found = server.post("/explain", {"text": "the film was good"})
        assert (status, len(found["words"])) == (200, 4)
