"""A certified run says what the exact sweep found."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from reports.trust_section import _certificate_block

CERTIFICATE = {"share_of_hypervolume": 0.991, "share_of_gain": 0.97, "epsilon": 1.012, "designs_recovered": 0.8}


def test_a_certificate_is_shown_and_its_absence_said():
    meta = {"certificate": {**CERTIFICATE, "exact_designs": 25}, "trials": 100, "stop_reason": "trials"}
    text = _certificate_block(SimpleNamespace(meta=meta, path="runs/x"))
    assert "99.10% of the exact hypervolume" in text and "25 exact designs" in text
    missing = _certificate_block(SimpleNamespace(meta={**meta, "certificate": None}, path=Path("x")))
    assert "not known" in missing and "--certify" in missing
