#!/usr/bin/env bash
# Install the wheels in dist/ into an empty environment and run the conformance kit there, far from the source tree.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

echo "Installing the wheels into an empty environment"
"${PYTHON:-python3}" -m venv "$folder/environment"
python=$folder/environment/bin/python
core=$(echo dist/haybaler-*.whl)
"$python" -m pip install --quiet --disable-pip-version-check "${core}[all,testing]" dist/haybaler_*.whl

echo "Running the conformance kit against the wheels"
mkdir -p "$folder/tests/stores"
cp pyproject.toml "$folder" # pytest's settings
cp tests/installed.py "$folder/tests"
cp tests/stores/test_{filesystem,memory}_conformance.py "$folder/tests/stores"
cd "$folder"
"$python" -m pytest -p no:cacheprovider tests/installed.py tests/stores
