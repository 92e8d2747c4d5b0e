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
find_path(CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${CUDAToolkit_LIBRARY_DIR} REQUIRED)
find_path(NCCL_INCLUDE nccl.h HINTS ${NCCL_ROOT}/include $ENV{NCCL_ROOT}/include ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${NCCL_ROOT}/lib $ENV{NCCL_ROOT}/lib ${CUDAToolkit_LIBRARY_DIR} REQUIRED)

add_library(moesaic_cuda INTERFACE)
target_include_directories(moesaic_cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS} ${CUDNN_INCLUDE})
target_link_libraries(moesaic_cuda INTERFACE CUDA::cudart_static)
