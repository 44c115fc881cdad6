import os

import numpy as np
import pytest
from scipy import stats

from adaptive_qs.errors import InputError
from adaptive_qs.privacy.entropy import InsecureSeed, SystemEntropy


def test_only_the_seed_is_marked_insecure():
    assert InsecureSeed(0).insecure
    assert not SystemEntropy().insecure


@pytest.mark.parametrize("source", [SystemEntropy(), InsecureSeed(1)])
def test_words_are_uniform_and_fresh(source):
    words = np.concatenate([source.words(20_000), source.words(1), source.words(0)])
    assert words.dtype == np.uint64
    assert np.unique(words).size == 20_001
    cells = np.bincount(words.view(np.uint8), minlength=256)
    assert stats.chisquare(cells).pvalue > 1e-6  # false alarm; the system's words have no seed


def test_a_seed_gives_one_stream_however_it_is_cut():
    whole, cut = InsecureSeed(2), InsecureSeed(2)
    parts = np.concatenate([cut.words(n) for n in (1, 6, 93)])
    assert np.array_equal(whole.words(100), parts)
    assert not np.array_equal(InsecureSeed(3).words(100), parts)


@pytest.mark.parametrize("seed", [-1, 1.5, "x", None])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(InputError, match="seed"):
        InsecureSeed(seed)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_draws_other_words():
    source = SystemEntropy()
    seen = source.words(3)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, source.words(16).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = np.frombuffer(os.read(reader, 128), dtype=np.uint64)
    os.close(reader)
    os.close(writer)
    assert theirs.size == 16
    assert np.unique(np.concatenate([seen, theirs, source.words(16)])).size == 35
