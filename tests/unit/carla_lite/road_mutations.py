"""One-place changes of an OpenDRIVE text: what exports, hands and broken disks do to one."""

from __future__ import annotations

import copy
import random
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator

NUMBERS = (
    *("-1", "0", "1", "-0.0", "1e-12", "1e4", "1e9", "-1e9", "1e30", "1e400", "99999999999", "nan", "inf", "-inf"),
    *("3,5", "5abc", "abc", " 5 ", "0x10", "1_0", "+2", ".5", "true", "", "12.000000000000001"),
)
TEXTS: dict[str, Callable[[str], str]] = {
    "byte order mark": lambda text: "\ufeff" + text,
    "leading newline": lambda text: "\n" + text,
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "namespace": lambda text: text.replace("<OpenDRIVE", '<OpenDRIVE xmlns="http://www.opendrive.org"', 1),
    "prefix": lambda text: text.replace("<OpenDRIVE", "<o:OpenDRIVE xmlns:o='x'").replace("</Open", "</o:Open"),
    "other root": lambda text: text.replace("OpenDRIVE>", "opendrive>").replace("<OpenDRIVE", "<opendrive"),
    "encoding": lambda text: '<?xml version="1.0" encoding="UTF-16"?>' + text.partition("?>")[2],
    "no declaration": lambda text: text.partition("?>")[2],
    "document type": lambda text: text.replace("<OpenDRIVE", '<!DOCTYPE OpenDRIVE [<!ENTITY x "y">]><OpenDRIVE', 1),
    "comment": lambda text: text.replace("<OpenDRIVE", "<!-- -- > & --><OpenDRIVE", 1),
    "comment in a geometry": lambda text: text.replace("<line", "<!-- a line --><line", 1),
    "text in a geometry": lambda text: text.replace("<line", "a line<line", 1),
    "bare ampersand": lambda text: text.replace('name="', 'name="a & b', 1),
    "bare less-than": lambda text: text.replace('name="', 'name="a < b', 1),
    "entities": lambda text: text.replace('type="driving"', 'type="&#100;riving"', 1),
    "unknown entity": lambda text: text.replace('type="driving"', 'type="&nothing;driving"', 1),
    "other letters": lambda text: text.replace('name="', 'name="Straße 道路', 1),
    "no quotes": lambda text: text.replace('id="1"', "id=1", 1),
    "single quotes": lambda text: text.replace('id="1"', "id='1'", 1),
    "attribute twice": lambda text: text.replace('id="1"', 'id="1" id="2"', 1),
    "left-hand traffic": lambda text: text.replace("<road ", '<road rule="LHT" ', 1),
    "left-hand traffic, small": lambda text: text.replace("<road ", '<road rule="lht" ', 1),
    "a word after the end": lambda text: text + "end",
    "two roots": lambda text: text + "<OpenDRIVE/>",
    "origin in words": lambda text: text.replace("+lat_0=49", "+lat_0=north"),
    "origin on two lines": lambda text: text.replace(" +lon_0", "\n+lon_0"),
    "no origin": lambda text: text.replace("+lat_0=49", "+lat_0=1e999"),
    "nothing": lambda _text: "",
    "cut": lambda text: text[: len(text) // 2],
}


def mutations(xodr: str, rng: random.Random) -> Iterator[tuple[str, str]]:
    """Yield every change with its name, in an order that the generator draws."""
    root = ET.fromstring(xodr)
    places = [
        (index, key, change)
        for index, element in enumerate(root.iter())
        for key in [*element.attrib, ""]
        for change in (_CHANGES if key else _STRUCTURE)
    ]
    ordered: list[tuple[int, str, str] | str] = [*places, *TEXTS]
    rng.shuffle(ordered)
    for one in ordered:
        if isinstance(one, str):
            yield one, TEXTS[one](xodr)
        else:
            changed = copy.deepcopy(root)
            element = list(changed.iter())[one[0]]
            name = f"<{element.tag} {element.attrib}> {one[1]}: {one[2]}"
            if _apply(changed, element, one[1], one[2], rng):
                yield name, ET.tostring(changed, encoding="unicode")


_STRUCTURE = ("delete", "double", "rename", "empty", "backwards")
_CHANGES = ("remove", "other case", "key in capitals", "like another", *(f"={value}" for value in NUMBERS))


def _apply(root: ET.Element, element: ET.Element, key: str, change: str, rng: random.Random) -> bool:
    """Make the change; return whether there was something to change."""
    if not key:
        return _restructure(root, element, change)
    value = element.attrib[key]
    if change == "remove":
        del element.attrib[key]
    elif change == "other case":
        element.attrib[key] = value.swapcase()
    elif change == "key in capitals":
        element.attrib[key.upper()] = element.attrib.pop(key)
    elif change == "like another":
        element.attrib[key] = rng.choice([one.attrib[key] for one in root.iter() if key in one.attrib])
    else:
        element.attrib[key] = change[1:]
    return element.attrib.get(key) != value


def _restructure(root: ET.Element, element: ET.Element, change: str) -> bool:
    parent = next((one for one in root.iter() if element in list(one)), None)
    if change == "rename":
        element.tag = element.tag.upper() if element.tag.lower() == element.tag else element.tag.lower()
    elif change == "empty":
        element[:] = []
    elif change == "backwards":
        element[:] = reversed(element)
    elif parent is None:
        return False
    elif change == "delete":
        parent.remove(element)
    else:
        parent.insert(list(parent).index(element), copy.deepcopy(element))
    return True
