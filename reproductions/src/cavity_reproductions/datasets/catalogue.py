"""What is known of each data set: where OpenML keeps it, how its labels are coded there, how large it is.

Labels are −1 and +1 wherever a set is read from. `positive` lists OpenML's labels that become +1. These are easily
misread (several sets say only 1 and 2), so a fetched set must have the sizes given here, among them the number of +1,
or it is refused.
"""

from typing import NamedTuple


class OpenML(NamedTuple):
    """A set on OpenML, by its number, or by name and version where the number is not certain."""

    name: str
    data_id: int | None
    negative: tuple[str, ...]
    positive: tuple[str, ...]


class Entry(NamedTuple):
    """A two-class set that is read from a CSV file or from OpenML."""

    title: str
    rows: int
    features: int
    positives: int
    openml: OpenML | None


CLASSIFICATION: dict[str, Entry] = {
    "banknote": Entry(
        "Banknote Authentication (UCI); +1: class 1",
        *(1372, 4, 610),
        OpenML("banknote-authentication", 1462, ("1",), ("2",)),
    ),
    "blood_transfusion": Entry(
        "Blood Transfusion Service Center (UCI); +1: gave blood in March 2007",
        *(748, 4, 178),
        OpenML("blood-transfusion-service-center", 1464, ("1",), ("2",)),
    ),
    "diabetes": Entry(
        "Pima Indians Diabetes; +1: tested positive; zeros in five features stand for missing values",
        *(768, 8, 268),
        OpenML("diabetes", 37, ("tested_negative",), ("tested_positive",)),
    ),
    "fertility": Entry(
        "Fertility (UCI); +1: altered diagnosis", *(100, 9, 12), OpenML("fertility", 1473, ("1",), ("2",))
    ),
    "haberman": Entry(
        "Haberman's Survival (UCI); +1: died within 5 years", *(306, 3, 81), OpenML("haberman", 43, ("1",), ("2",))
    ),
    "heart": Entry(
        "Statlog Heart (UCI); +1: heart disease present",
        *(270, 13, 120),
        OpenML("heart-statlog", 53, ("absent",), ("present",)),
    ),
    "ionosphere": Entry("Ionosphere (UCI); +1: good", *(351, 34, 225), OpenML("ionosphere", 59, ("b",), ("g",))),
    "pima_ripley": Entry(
        "Pima without missing values (MASS: Pima.tr, 200 rows, then Pima.te); +1: diabetic", *(532, 7, 177), None
    ),
    "sonar": Entry(
        "Connectionist Bench, Sonar (UCI); +1: mine", *(208, 60, 111), OpenML("sonar", 40, ("Rock",), ("Mine",))
    ),
    "spambase": Entry("Spambase (UCI); +1: spam", *(4601, 57, 1813), OpenML("spambase", 44, ("0",), ("1",))),
    "thyroid": Entry(
        "Thyroid Disease, new-thyroid (UCI); +1: hyper or hypo, −1: normal",
        *(215, 5, 65),
        OpenML("thyroid-new", None, ("1",), ("2", "3")),
    ),
}

#: scikit-learn's own sets, by the name of their loader; labels 0, 1, … as there.
BUNDLED = ("breast_cancer", "digits", "iris", "wine")
#: the one made here: the images of a 3 (+1) and of a 5 (−1) among the digits.
DIGITS_3_VS_5 = "digits_3_vs_5"
