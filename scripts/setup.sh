#!/usr/bin/env bash
# Installs the Debian packages that Moesaic needs and that are missing and, where nvcc is, headers from PyPI into .deps/.
# Usage: scripts/setup.sh [--dev] [--mpi]
#   --dev: also clang and its tools, which only tools/lint and scripts/fuzz.sh need.
#   --mpi: also Open MPI, for cmake --preset mpi.
# Run again at any time: with everything in place it does nothing, and needs no network.
set -euo pipefail
cd "$(dirname "$0")/.."

required=(g++ cmake ninja-build libdnnl-dev opencl-headers ocl-icd-opencl-dev libtomlplusplus-dev libcli11-dev libfmt-dev
  nlohmann-json3-dev libxxhash-dev libzstd-dev libpcre2-dev libutf8proc-dev libgtest-dev libgmock-dev python3)
# Faster builds, and the text that the quickstart trains on; everything works without them.
optional=(ccache mold jargon-text)

for option in "$@"; do
  case $option in
    --dev) required+=(clang-format clang-tidy clang libclang-rt-dev) ;;
    --mpi) required+=(libopenmpi-dev openmpi-bin) ;;
    -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "setup: unknown option $option; see scripts/setup.sh --help" >&2; exit 2 ;;
  esac
done

# Header-only libraries that only PyPI carries: folder in .deps, package, folder inside the wheel.
wheels=("cutlass nvidia-cutlass==4.2.0.0 cutlass_library/source/include/"
  "cudnn_frontend nvidia-cudnn-frontend==1.32.0 include/")

unpack() {  # the files of a wheel below one folder
  python3 - "$@" <<'PY'
import os, sys, zipfile
inside, to, wheel = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
        if not name.startswith(inside) or name.endswith("/"):
            continue
        path = os.path.normpath(os.path.join(to, name[len(inside):]))
        if not path.startswith(to + os.sep):
            sys.exit(f"{wheel}: {name} would be written outside of {to}")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(archive.read(name))
PY
}

fetch_headers() {  # a package is in place when the file that names its version is
  local entry folder package inside there
  command -v nvcc >/dev/null || return 0
  for entry in "${wheels[@]}"; do
    read -r folder package inside <<<"$entry"
    there=.deps/$folder
    [[ $(cat "$there/version" 2>/dev/null) != "$package" ]] || continue
    echo "setup: fetching $package into $there"
    rm -rf "$there" .deps/wheel
    mkdir -p "$there"
    if ! python3 -m pip download --quiet --no-deps --dest .deps/wheel "$package" ||
      ! unpack "$inside" "$there/include" .deps/wheel/*.whl; then
      echo "setup: FAILED: $package could not be fetched from PyPI; CUDA builds need it. Check the network, then run this again." >&2
      exit 1
    fi
    echo "$package" >"$there/version"
    rm -rf .deps/wheel
  done
}

if ! command -v dpkg-query >/dev/null; then
  echo "setup: this is not a Debian system. Install the counterparts of these packages by hand:" >&2
  echo "  ${required[*]} ${optional[*]}" >&2
  exit 1
fi
if command -v nvcc >/dev/null && ! python3 -m pip --version >/dev/null 2>&1; then required+=(python3-pip); fi

missing_of() {  # the given packages that dpkg does not have
  local package
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | head -n 1) == installed ]] || echo "$package"
  done
}

mapfile -t missing < <(missing_of "${required[@]}" "${optional[@]}")
if [[ ${#missing[@]} -eq 0 ]]; then
  fetch_headers
  echo "setup: everything is in place"
  exit 0
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  command -v sudo >/dev/null || { echo "setup: not root and no sudo: install ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
# Slim images leave /usr/share/doc out, where jargon-text keeps its text.
install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends
  -o "Dpkg::Options::=--path-include=/usr/share/doc/jargon-text/*")

echo "setup: installing with apt-get: ${missing[*]}"
"${as_root[@]}" apt-get update -q || echo "setup: apt-get update failed; trying with the lists at hand" >&2
if ! "${install[@]}" "${missing[@]}"; then
  # One that cannot be had must not keep the others away.
  mapfile -t needed < <(missing_of "${required[@]}")
  [[ ${#needed[@]} -eq 0 ]] || "${install[@]}" "${needed[@]}" || true
fi

mapfile -t needed < <(missing_of "${required[@]}")
if [[ ${#needed[@]} -gt 0 ]]; then
  echo "setup: FAILED: still missing: ${needed[*]}. Check the network and apt's sources, then run this again." >&2
  exit 1
fi
mapfile -t left < <(missing_of "${optional[@]}")
[[ ${#left[@]} -eq 0 ]] || echo "setup: going on without ${left[*]} (optional)"
fetch_headers
echo "setup: done"
