#pragma once
// Which of cuBLASLt's algorithms a dense product runs with, measured instead of guessed. What is chosen belongs to the calling
// thread, as its products do (gemm_cuda.h). In a build without CUDA there is nothing to choose.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace moesaic::ops {

/// The fastest algorithm of one product. Texts: what distinguishes products, and 128 hexadecimal digits of the library's.
struct GemmChoice {
  std::string product, algorithm;
  double seconds = 0;        // of the chosen one, median
  double first_seconds = 0;  // of the one that the library's heuristic puts first
};

/// "NVIDIA H200, cuBLASLt 130100": choices hold for nothing else. Empty without CUDA.
std::string gemm_library();

/// From now on this thread's products run with these algorithms (by product); the others, and those whose algorithm this
/// library refuses, with its first guess.
void use_gemm_choices(const std::map<std::string, std::string>& algorithms);

/// Bytes that tune_gemms() works in: operands and result of the largest product that this thread has run, and a workspace.
int64_t gemm_tuning_bytes();
/// Times the library's guesses for every product that this thread has run, in turns, on device memory that holds numbers of
/// a run's kind. Waits for the GPU. A choice other than the first guess is at least 1 % faster.
std::vector<GemmChoice> tune_gemms(std::byte* memory);

}  // namespace moesaic::ops
