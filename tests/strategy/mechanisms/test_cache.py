import numpy as np

from adaptive_qs.strategy.mechanisms.cache import ArrayCache


def test_the_least_recently_used_go_first():
    cache, made = ArrayCache(3 * 80), []

    def get(key):
        return cache.get(key, lambda: made.append(key) or np.full(10, float(key)))

    for key in (1, 2, 3, 1, 4, 1, 3, 2):
        assert (get(key) == key).all()
    assert made == [1, 2, 3, 4, 2]  # 2 went when 4 came, since 1 had been used after it


def test_what_is_larger_than_the_cache_is_made_each_time():
    cache, made = ArrayCache(100), []
    for _ in range(2):
        cache.get("x", lambda: made.append(1) or np.zeros(20))
    assert len(made) == 2
    cache.get("y", lambda: made.append(2) or np.zeros(10))
    cache.get("y", lambda: made.append(2) or np.zeros(10))
    assert made == [1, 1, 2]
