# The CUDA toolkit and what the CUDA rooms link. The runtime is linked statically and reaches the driver itself, so a build
# needs no driver and its binary starts (and says so) on a machine without a GPU.
set(CMAKE_CUDA_ARCHITECTURES 90a-real)
enable_language(CUDA)
find_package(CUDAToolkit 13.0 REQUIRED)

# CMake 3.25 does not know that nvcc has C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
# FMT_*: nvcc hands the host compiler code in which fmt's compile-time checks of format strings do not hold.
# Without NDEBUG ptxas serialises CUTLASS's wgmma. 20012: a remark on defaulted constructors.
string(APPEND CMAKE_CUDA_FLAGS " -DNDEBUG -DFMT_CONSTEVAL= -DFMT_USE_CONSTEXPR=1 --expt-relaxed-constexpr -lineinfo -diag-suppress 20012")
string(APPEND CMAKE_CUDA_FLAGS " -Xcompiler=-Wall,-Wno-unknown-pragmas,-march=x86-64-v3")
set(CMAKE_CUDA_FLAGS_RELEASE "-O3")
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)

# Headers that come from PyPI (scripts/setup.sh puts them into .deps/).
set(MOESAIC_DEPS ${CMAKE_SOURCE_DIR}/.deps CACHE PATH "Where scripts/setup.sh put headers from PyPI")
find_path(CUTLASS_INCLUDE cutlass/cutlass.h PATHS ${MOESAIC_DEPS}/cutlass/include NO_DEFAULT_PATH)
find_path(CUDNN_FRONTEND_INCLUDE cudnn_frontend.h PATHS ${MOESAIC_DEPS}/cudnn_frontend/include NO_DEFAULT_PATH)
foreach(HEADERS CUTLASS_INCLUDE CUDNN_FRONTEND_INCLUDE)
  if(NOT ${HEADERS})
    message(FATAL_ERROR "${HEADERS} was not found under ${MOESAIC_DEPS}; run scripts/setup.sh, which fills it")
  endif()
endforeach()
# A library of NVIDIA's that is not part of the toolkit: <NAME>_INCLUDE and <NAME>_LIBRARY, beside the toolkit or under <NAME>_ROOT.
function(find_beside_cuda NAME HEADER LIBRARY VERSION PACKAGE)
  set(ROOTS ${${NAME}_ROOT} $ENV{${NAME}_ROOT})
  find_path(${NAME}_INCLUDE ${HEADER} HINTS ${ROOTS} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  find_library(${NAME}_LIBRARY NAMES ${LIBRARY} lib${LIBRARY}.so.${VERSION} NAMES_PER_DIR HINTS ${ROOTS} ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib)
  if(NOT ${NAME}_INCLUDE OR NOT ${NAME}_LIBRARY)
    message(FATAL_ERROR "${HEADER} or lib${LIBRARY} was not found: install NVIDIA's package ${PACKAGE}, set ${NAME}_ROOT to a folder with its "
            "include/ and lib/ (PyPI's wheels have them), or build without GPUs (cmake --preset release)")
  endif()
endfunction()
find_beside_cuda(CUDNN cudnn.h cudnn 9 cudnn9-cuda-13)
find_beside_cuda(NCCL nccl.h nccl 2 libnccl-dev)

add_library(moesaic_cuda INTERFACE)
target_include_directories(moesaic_cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS} ${CUDNN_INCLUDE})
target_link_libraries(moesaic_cuda INTERFACE CUDA::cudart_static)
