"""Questions with retrieved documents: a prefix cache finds a document again only where all before it is equal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field

from workloads.distributions import Count, Distribution, LogNormal, Tokens, TokensOrNone, constant
from workloads.generators.common import PoolSize, Randomness, RequestParams, Streams, ZipfExponent, distinct
from workloads.generators.prompt import single_requests
from workloads.log import ReadLog
from workloads.spec import Piece, RequestSpec, Segment

NAME = "retrieval"
SUMMARY = "questions with documents from a pool, in one of several orders"


class Params(RequestParams):
    """Settings of `retrieval`."""

    documents: PoolSize = Field(default=1000, description="number of different documents")
    document_zipf: ZipfExponent = Field(default=1.0, description="Zipf exponent of their popularity; 0 = all alike")
    document_tokens: Tokens = Field(
        default=Distribution(lognormal=LogNormal(mean=600, sigma=0.6)), description="length of a document, drawn once"
    )
    documents_per_request: Count = Field(default=constant(4), description="number of documents of a request")
    order: Literal["relevance", "shuffled", "popular_first", "canonical"] = Field(
        default="relevance",
        description="relevance: as drawn, popular ones tend to come first; shuffled: any order is as likely; "
        "popular_first: by popularity; canonical: by a fixed number that has nothing to do with popularity",
    )
    system_tokens: TokensOrNone = Field(
        default=constant(256), description="length of the system prompt of all requests"
    )
    question_tokens: Tokens = Field(default=constant(64), description="length of a question")
    question_position: Literal["last", "first"] = Field(
        default="last", description="whether the question stands after or before the documents (first hides them)"
    )
    output_tokens: Tokens = Field(default=constant(200), description="length of an answer")


def generate(params: Params, rng: np.random.SeedSequence, log: ReadLog, prefix: str) -> Iterator[RequestSpec]:
    """The requests, in order of arrival."""
    random = Randomness(rng, NAME)
    lengths = random.pool("document lengths", params.document_tokens, params.documents, 1)
    system = Segment(random.stream("system"), 0, random.pool("system length", params.system_tokens, 1)[0])
    ranks = random.ranks("document popularity", params.documents, params.document_zipf)
    counts = random.draws("documents of a request", params.documents_per_request, 1)
    questions = random.draws("question lengths", params.question_tokens, 1)
    outputs = random.draws("answer lengths", params.output_tokens, 1)
    shuffler = random.rng("document order")
    number_of = random.rng("document numbers").permutation(params.documents)
    documents, texts = Streams(random, "document"), Streams(random, "question")
    for index, request in single_requests(random, params.arrivals, params.requests, log, prefix):
        count = next(counts)
        if count > params.documents:
            log.count(f"requests with fewer documents than drawn: there are only {params.documents}")
        chosen = distinct(ranks, min(count, params.documents), params.documents)
        if params.order == "shuffled":
            shuffler.shuffle(chosen)
        elif params.order == "popular_first":
            chosen.sort()
        elif params.order == "canonical":
            chosen.sort(key=lambda rank: int(number_of[rank]))
        question = Segment(texts[index], 0, next(questions))
        pieces: list[Piece] = [system]
        if params.question_position == "first":
            pieces.append(question)
        pieces += [Segment(documents[rank], 0, lengths[rank]) for rank in chosen]
        if params.question_position == "last":
            pieces.append(question)
        yield request(pieces, next(outputs))
