"""Builds the wheel: the package has Python alone, so pip needs no other tool, and no network."""
import base64
import hashlib
import os
import re
import zipfile

_HERE = os.path.dirname(os.path.abspath(__file__))


def _project():
    with open(os.path.join(_HERE, "pyproject.toml"), encoding="utf-8") as file:
        return dict(re.findall(r'^([\w-]+) = "(.*)"$', file.read(), re.MULTILINE))


def _files(project, stem):
    for name in sorted(os.listdir(os.path.join(_HERE, project["name"]))):
        if name.endswith(".py"):
            with open(os.path.join(_HERE, project["name"], name), "rb") as file:
                yield f"{project['name']}/{name}", file.read()
    yield f"{stem}.dist-info/METADATA", (
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        f"Summary: {project['description']}\nRequires-Python: {project['requires-python']}\nLicense: MIT\n").encode()
    yield f"{stem}.dist-info/WHEEL", b"Wheel-Version: 1.0\nGenerator: knetc\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    project = _project()
    stem = f"{project['name']}-{project['version']}"
    wheel, record = f"{stem}-py3-none-any.whl", []
    with zipfile.ZipFile(os.path.join(wheel_directory, wheel), "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in _files(project, stem):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}\n")
            out.writestr(name, data)
        out.writestr(f"{stem}.dist-info/RECORD", "".join(record) + f"{stem}.dist-info/RECORD,,\n")
    return wheel
