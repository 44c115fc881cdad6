"""Natural orders: found where all labels fit, and nowhere else."""

import random

import pytest

from adaptive_qs.data.orders import in_natural_order

ORDERED = [
    "Jan Feb Mar Dec",
    "january april DECEMBER",
    "Mon Tues Thu Sun",
    "Q1 Q2 Q4",
    "low medium high",
    "very_low low high",
    "Small Medium Large",
    "XS S M XL",
    "Strongly disagree|Disagree|Neutral|Agree|Strongly agree",
    "never rarely sometimes often always",
    "none one two ten",
    "A B C D E F G",
    "A+ A A- B F",
    "A1 A2 B1 C5",
    "Dec-2017|Jan-2018|Feb-2018",
    "< 1 year|1 year|9 years|10+ years",
    "36 months|60 months",
    "under 18|18-24|25-34|65+",
    "17 and under|18 to 64|65 and over",
    "0|1-2|3-4|5 or more",
    "<=50K|>50K",
    "$1,000 to $9,999|$10,000 - $20,000|$20k+",
    "1st 2nd 10th",
    "5%|10%|100%",
    "9th grade|10th grade",
    "under 18 years|18 to 64 years|65 years and over",
    "<1|0-4|5-9",
    "none low medium high",
    "none mild moderate severe",
    "1 child|2 children|3 children",
    "1 class|2 classes",
    "1 to 4|5 to 9|10 and up",
    "1 m|5 m|30 m",
    "$900|$2 k|$1 m",
    "500k|1M|2M",
    "Under 25k|25k-50k|50k-1M|Over 1M",
    "2 BR|3 BR",
]
UNORDERED = [
    "red green blue",
    "Jan Feb other",
    "low medium high unknown",
    "S M",
    "A B",
    "B C D",
    "A B AB O",
    "F M",
    "yes no",
    "10 Main Street|2 Oak Avenue",
    "1 - Male|2 - Female",
    "12 hours|1 day",
    "7-Eleven|3M",
    "Jan",
    "3 years",
    "2 k|1 m|5 m",
    "900|1.5 m|20 m",
    "500k|1m|2M",
    "1 k - 2 m|3 k - 4 m",
    "9 am|10 am|11 am",
    "11 pm|12 pm",
    "9+|10",
    "0-10|5|20",
    "1-2|10-3",
    "5 kg|5 lb",
]


def parted(text):
    return text.split("|" if "|" in text else " ")


@pytest.mark.parametrize("text", ORDERED)
def test_an_order_is_found_from_any_other(text):
    labels = parted(text)
    for seed in range(5):
        shuffled = random.Random(seed).sample(labels, len(labels))
        assert in_natural_order(shuffled) == labels


@pytest.mark.parametrize("text", UNORDERED)
def test_other_labels_have_none(text):
    assert in_natural_order(parted(text)) is None
