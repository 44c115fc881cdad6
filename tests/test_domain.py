from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.cliques import CliqueIndex, downward_closure
from adaptive_qs.domain import Attribute, Domain, subsets
from adaptive_qs.errors import SchemaError

cliques = st.sets(st.integers(0, 6), max_size=4).map(lambda s: tuple(sorted(s)))


def powerset(items):
    """All subsets by binary counting."""
    return {
        frozenset(x for k, x in enumerate(items) if mask >> k & 1)
        for mask in range(2 ** len(items))
    }


@given(cliques)
def test_subsets_are_the_powerset_by_size(clique):
    found = list(subsets(clique))
    assert len(found) == 2 ** len(clique)
    assert {frozenset(s) for s in found} == powerset(clique)
    assert all(s == tuple(sorted(s)) for s in found)
    assert [len(s) for s in found] == sorted(len(s) for s in found)


@given(st.lists(cliques, max_size=5))
def test_the_closure_holds_every_subset_once_smallest_first(some):
    closure = downward_closure(some)
    expected = set().union(*(powerset(c) for c in some)) if some else set()
    assert {frozenset(c) for c in closure} == expected
    assert len(closure) == len(expected)
    assert list(closure) == sorted(closure, key=lambda c: (len(c), c))


@given(st.lists(cliques, min_size=1, max_size=5))
def test_the_index_finds_every_clique_and_its_subsets(some):
    closure = downward_closure(some)
    index = CliqueIndex(7, closure)
    for degree in {len(c) for c in closure}:
        group = [c for c in closure if len(c) == degree]
        array = np.array(group, dtype=np.int32).reshape(len(group), degree)
        assert [closure[place] for place in index.positions(array)] == group
        for clique, places in zip(group, index.of_subsets(array)):
            assert [closure[place] for place in places] == list(subsets(clique))


def test_the_closure_of_cliques_too_long_for_one_number_is_the_same():
    wide = tuple(range(990, 1_000))  # ten of a thousand attributes are 10**30 cliques
    assert downward_closure([wide]) == tuple(subsets(wide))


def test_sizes_are_exact_beyond_64_bits():
    domain = Domain.from_sizes({f"a{i}": 1000 for i in range(30)})
    assert domain.size(tuple(range(30))) == 10**90
    assert domain.size(()) == 1


def test_names_and_cliques_translate_both_ways():
    domain = Domain.from_sizes({"a": 2, "b": 3, "c": 4})
    assert len(domain) == 3
    for degree in range(4):
        for clique in combinations(range(3), degree):
            names = domain.clique_names(clique)
            assert domain.clique(names) == clique
            assert domain.clique(reversed(names)) == clique
    assert domain.shape((0, 2)) == (2, 4)


@pytest.mark.parametrize("size", [0, -1, 2.0, "3", None])
def test_a_size_that_is_not_a_positive_integer_is_refused(size):
    with pytest.raises(SchemaError, match="'age' has size"):
        Attribute("age", size)


def test_a_domain_without_attributes_is_refused():
    with pytest.raises(SchemaError, match="no attributes"):
        Domain(())


def test_a_name_declared_twice_is_refused():
    with pytest.raises(SchemaError, match="'age' is declared twice"):
        Domain((Attribute("age", 2), Attribute("sex", 2), Attribute("age", 3)))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "z"], "'z' is not in the schema: check the spelling"),
        (["a", "bb"], "'bb' is not in the schema: did you mean 'b'?"),
        (["a", "a"], "twice"),
    ],
)
def test_a_clique_of_unknown_or_repeated_names_is_refused(names, message):
    with pytest.raises(SchemaError, match=message):
        Domain.from_sizes({"a": 2, "b": 3}).clique(names)
