#!/usr/bin/env bash
# Times torch_cpu.py under Debian's PyTorch with a chosen BLAS library and 2 threads; prints the configuration
# and tokens per second as JSON. Further arguments go to torch_cpu.py.
#   bench/peers/run_torch_cpu.sh                  BLIS with OpenMP
#   BLAS=openblas bench/peers/run_torch_cpu.sh    OpenBLAS with OpenMP, told the processor (it misdetects new ones)
# Only Debian's python3-torch and python3-numpy are installed when missing. A BLAS library that is not installed
# is unpacked under build/peers and found by LD_LIBRARY_PATH, so the system's alternatives stay as they are.
# Run it on an idle machine: OpenMP threads spin, and one busy neighbour makes the numbers meaningless.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
unpacked=$here/../../build/peers
blas=${BLAS:-blis}
threads=${THREADS:-2}
python=/usr/bin/python3

case $blas in
  blis) packages=(libblis4-openmp) folder=blis-openmp ;;
  openblas) packages=(libopenblas0-openmp libgfortran5) folder=openblas-openmp ;;
  *) echo "BLAS must be blis or openblas, not '$blas'" >&2; exit 2 ;;
esac

if ! "$python" -c 'import torch, numpy' 2>/dev/null; then
  sudo=$([[ $EUID -eq 0 ]] || echo sudo)
  $sudo apt-get update -qq
  $sudo apt-get install -y -qq --no-install-recommends python3-torch python3-numpy >&2
fi

library=$(compgen -G "/usr/lib/*/$folder/libblas.so.3" | head -n 1 || true)
if [[ -z $library ]]; then
  mkdir -p "$unpacked"
  if ! compgen -G "$unpacked/usr/lib/*/$folder/libblas.so.3" >/dev/null; then
    (
      cd "$unpacked"
      apt-get download -qq -o APT::Sandbox::User=root "${packages[@]}"
      for deb in ./*.deb; do
        dpkg -x "$deb" .
        rm "$deb"
      done
    ) >&2
  fi
  library=$(compgen -G "$unpacked/usr/lib/*/$folder/libblas.so.3" | head -n 1)
fi
library_folder=$(dirname "$library")
library_path=$library_folder:$(dirname "$library_folder")  # the second for libgfortran

export LD_LIBRARY_PATH=$library_path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export OMP_NUM_THREADS=$threads BLIS_NUM_THREADS=$threads
if [[ $blas == openblas ]]; then
  OPENBLAS_CORETYPE=$(grep -qw avx512f /proc/cpuinfo && echo SkylakeX || echo Haswell)
  export OPENBLAS_CORETYPE
fi
exec "$python" "$here/torch_cpu.py" --threads "$threads" "$@"
