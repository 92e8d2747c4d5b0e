#include "ops/matmul/gemm_cuda.h"

#include <cublasLt.h>

#include <algorithm>
#include <charconv>
#include <compare>
#include <map>
#include <optional>

#include "base/error.h"
#include "device/cuda/cuda_check.h"
#include "ops/matmul/gemm_choices.h"

namespace moesaic::ops {
namespace {

void check(cublasStatus_t status, const char* what) {
  require<DeviceError>(status == CUBLAS_STATUS_SUCCESS, "{} failed: cuBLASLt says {}", what,
                       cublasLtGetStatusString(status));
}

/// What an algorithm is chosen by. Alignments: the largest power of two, up to 256, that divides the address.
struct Key {
  int64_t m, n, k, workspace_bytes;
  DType type, out_type;
  bool trans_a, trans_b;
  uint32_t align_a, align_b, align_out;
  auto operator<=>(const Key&) const = default;
};

uint32_t alignment(const void* p) {
  uint32_t bytes = 256;
  while (reinterpret_cast<uintptr_t>(p) % bytes != 0) bytes /= 2;
  return bytes;
}

cudaDataType_t data_type(DType type) {
  return type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// A product made ready: what cublasLtMatmul takes besides the addresses.
struct Product {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, out = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

cublasLtMatrixLayout_t layout(DType type, int64_t rows, int64_t cols) {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublasLtMatrixLayoutCreate(&made, data_type(type), static_cast<uint64_t>(rows),
                                   static_cast<uint64_t>(cols), rows),
        "describing a matrix");
  return made;
}

/// Up to `most` algorithms, in the order of the library's heuristic; at least one.
std::vector<cublasLtMatmulAlgo_t> guesses(cublasLtHandle_t handle, const Key& key, const Product& p,
                                          int most) {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "describing a preference");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
          "setting a preference");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(key.workspace_bytes));
  // Parts of a sum are kept in FP32, so that the result is rounded once.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.align_b);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.align_a);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.align_out);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.align_out);
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(most));
  int num_found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, p.operation, p.first, p.second, p.out, p.out, preference, most, found.data(), &num_found);
  cublasLtMatmulPreferenceDestroy(preference);
  require<DeviceError>(status == CUBLAS_STATUS_SUCCESS && num_found >= 1,
                       "cuBLASLt has no algorithm for a product of {} x {} x {} ({}, {}): {}", key.m, key.n,
                       key.k, name_of(key.type), name_of(key.out_type), cublasLtGetStatusString(status));
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  algorithms.reserve(found.size());
  for (int i = 0; i < num_found; ++i) algorithms.push_back(found[static_cast<size_t>(i)].algo);
  return algorithms;
}

std::string name_of(const Key& key) {
  return fmt::format("{} x {} x {} {} to {}{}{}, aligned {} {} {}, workspace {}", key.m, key.n, key.k,
                     name_of(key.type), name_of(key.out_type), key.trans_a ? ", a transposed" : "",
                     key.trans_b ? ", b transposed" : "", key.align_a, key.align_b, key.align_out,
                     key.workspace_bytes);
}

std::string to_hex(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const uint64_t word : algorithm.data) text += fmt::format("{:016x}", word);
  return text;
}

/// The algorithm in `text`, if it is one of this library for this product within the workspace.
std::optional<cublasLtMatmulAlgo_t> from_hex(const std::string& text, cublasLtHandle_t handle, const Key& key,
                                             const Product& p) {
  cublasLtMatmulAlgo_t algorithm{};
  constexpr size_t kDigits = 16;
  if (text.size() != kDigits * std::size(algorithm.data)) return std::nullopt;
  for (size_t i = 0; i < std::size(algorithm.data); ++i) {
    const char* begin = text.data() + kDigits * i;
    const auto [end, error] = std::from_chars(begin, begin + kDigits, algorithm.data[i], 16);
    if (error != std::errc() || end != begin + kDigits) return std::nullopt;
  }
  cublasLtMatmulHeuristicResult_t result{};
  if (cublasLtMatmulAlgoCheck(handle, p.operation, p.first, p.second, p.out, p.out, &algorithm, &result) !=
          CUBLAS_STATUS_SUCCESS ||
      result.workspaceSize > static_cast<size_t>(key.workspace_bytes))
    return std::nullopt;
  return algorithm;
}

/// The handle and the products of one thread, which serves one GPU.
class Products {
 public:
  Products() { check(cublasLtCreate(&handle_), "starting cuBLASLt"); }
  ~Products() {
    for (auto& [key, p] : made_) {
      cublasLtMatmulDescDestroy(p.operation);
      for (cublasLtMatrixLayout_t matrix : {p.first, p.second, p.out}) cublasLtMatrixLayoutDestroy(matrix);
    }
    cublasLtDestroy(handle_);
  }
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  cublasLtHandle_t handle() const { return handle_; }

  /// The products made so far.
  const std::map<Key, Product>& made() const { return made_; }
  void use(std::map<std::string, std::string> choices) {
    choices_ = std::move(choices);
    for (auto& [key, product] : made_) product.algorithm = choose(key, product);
  }

  const Product& find(const Key& key) {
    const auto at = made_.find(key);
    return at != made_.end() ? at->second : made_.emplace(key, make(key)).first->second;
  }

 private:
  /// The library counts columns first, in which our out is its transpose: out^T [n, m] = op(b)^T op(a)^T, so b comes first.
  Product make(const Key& key) {
    Product p;
    p.first = key.trans_b ? layout(key.type, key.k, key.n) : layout(key.type, key.n, key.k);
    p.second = key.trans_a ? layout(key.type, key.m, key.k) : layout(key.type, key.k, key.m);
    p.out = layout(key.out_type, key.n, key.m);
    // Not CUBLAS_COMPUTE_32F_FAST_TF32: FP32 inputs keep all their bits.
    check(cublasLtMatmulDescCreate(&p.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, bool transposed) {
      const cublasOperation_t value = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
      check(cublasLtMatmulDescSetAttribute(p.operation, attribute, &value, sizeof value),
            "describing a product");
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, key.trans_b);
    set(CUBLASLT_MATMUL_DESC_TRANSB, key.trans_a);
    p.algorithm = choose(key, p);
    return p;
  }

  cublasLtMatmulAlgo_t choose(const Key& key, const Product& p) const {
    if (const auto chosen = choices_.find(name_of(key)); chosen != choices_.end())
      if (const auto algorithm = from_hex(chosen->second, handle_, key, p)) return *algorithm;
    return guesses(handle_, key, p, 1).front();
  }

  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, Product> made_;
  std::map<std::string, std::string> choices_;  // algorithms by name_of(key)
};

Products& products() {
  thread_local Products of_this_thread;
  return of_this_thread;
}

void run(const Product& p, const cublasLtMatmulAlgo_t& algorithm, const void* a, const void* b, float beta,
         void* out, void* workspace, int64_t workspace_bytes, cudaStream_t stream) {
  const float alpha = 1;
  check(cublasLtMatmul(products().handle(), p.operation, &alpha, b, p.first, a, p.second, &beta, out, p.out,
                       out, p.out, &algorithm, workspace, static_cast<size_t>(workspace_bytes), stream),
        "a product");
}

// Tuning: memory is a, b, out, workspace, each aligned.
constexpr int64_t kAlign = 256;
int64_t bytes_a(const Key& key) {
  return round_up(key.m * key.k * size_of(key.type), kAlign);
}
int64_t bytes_b(const Key& key) {
  return round_up(key.n * key.k * size_of(key.type), kAlign);
}
int64_t bytes_out(const Key& key) {
  return round_up(key.m * key.n * size_of(key.out_type), kAlign);
}

/// Measures one run of each of the algorithms at a time, so that all see the same clock.
GemmChoice fastest(const Key& key, const Product& p, std::byte* memory, cudaStream_t stream,
                   cudaEvent_t begin, cudaEvent_t end) {
  constexpr int kGuesses = 12, kRounds = 9;
  constexpr double kGain = 0.99;
  std::byte *a = memory, *b = a + bytes_a(key), *out = b + bytes_b(key), *workspace = out + bytes_out(key);
  const auto algorithms = guesses(products().handle(), key, p, kGuesses);
  std::vector<std::vector<float>> times(algorithms.size());
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < algorithms.size(); ++i) {
      cuda_check(cudaEventRecord(begin, stream), "timing a product");
      run(p, algorithms[i], a, b, 0, out, workspace, key.workspace_bytes, stream);
      cuda_check(cudaEventRecord(end, stream), "timing a product");
      cuda_check(cudaEventSynchronize(end), "timing a product");
      float ms = 0;
      cuda_check(cudaEventElapsedTime(&ms, begin, end), "timing a product");
      if (round > 0) times[i].push_back(ms);  // the first loads the kernel
    }
  size_t best = 0;
  for (auto& t : times) std::nth_element(t.begin(), t.begin() + kRounds / 2, t.end());
  const auto seconds = [&](size_t i) { return 1e-3 * static_cast<double>(times[i][kRounds / 2]); };
  for (size_t i = 1; i < times.size(); ++i)
    if (seconds(i) < (best == 0 ? kGain : 1.0) * seconds(best)) best = i;
  return {name_of(key), to_hex(algorithms[best]), seconds(best), seconds(0)};
}

}  // namespace

std::string gemm_library() {
  int gpu = 0;
  cudaDeviceProp properties{};
  cuda_check(cudaGetDevice(&gpu), "asking for the GPU");
  cuda_check(cudaGetDeviceProperties(&properties, gpu), "asking for the GPU's properties");
  return fmt::format("{}, cuBLASLt {}", properties.name, cublasLtGetVersion());
}

void use_gemm_choices(const std::map<std::string, std::string>& algorithms) {
  products().use(algorithms);
}

int64_t gemm_tuning_bytes() {
  int64_t most = 0;
  for (const auto& [key, product] : products().made())
    most = std::max(most, bytes_a(key) + bytes_b(key) + bytes_out(key) + key.workspace_bytes);
  return most;
}

std::vector<GemmChoice> tune_gemms(std::byte* memory) {
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  for (cudaEvent_t* event : {&begin, &end}) cuda_check(cudaEventCreate(event), "making an event");
  std::vector<GemmChoice> choices;
  for (const auto& [key, product] : products().made())
    choices.push_back(fastest(key, product, memory, stream, begin, end));
  for (cudaEvent_t event : {begin, end}) cudaEventDestroy(event);
  cudaStreamDestroy(stream);
  return choices;
}

void gemm_cuda(const OpContext& c, int64_t m, int64_t n, int64_t k, GemmOperand a, GemmOperand b,
               bool accumulate, void* out, DType out_type, void* workspace, int64_t workspace_bytes) {
  MOESAIC_CHECK(a.type == b.type && k > 0 && workspace_bytes >= kGemmWorkspace, "{} x {} x {}", m, n, k);
  MOESAIC_CHECK(a.type == DType::bf16 || (a.type == DType::f32 && out_type == DType::f32));
  if (m == 0 || n == 0) return;
  const Product& p = products().find({.m = m,
                                      .n = n,
                                      .k = k,
                                      .workspace_bytes = workspace_bytes,
                                      .type = a.type,
                                      .out_type = out_type,
                                      .trans_a = a.transposed,
                                      .trans_b = b.transposed,
                                      .align_a = alignment(a.data),
                                      .align_b = alignment(b.data),
                                      .align_out = alignment(out)});
  run(p, p.algorithm, a.data, b.data, accumulate ? 1 : 0, out, workspace, workspace_bytes,
      static_cast<cudaStream_t>(c.stream()));
}

}  // namespace moesaic::ops
