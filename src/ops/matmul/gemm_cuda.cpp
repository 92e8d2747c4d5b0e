#include "ops/matmul/gemm_cuda.h"

#include <cublasLt.h>

#include <compare>
#include <map>

#include "base/error.h"

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

/// The algorithm that the library's heuristic puts first. A file of measured choices would answer here, by the key.
cublasLtMatmulAlgo_t first_choice(cublasLtHandle_t handle, const Key& key, const Product& p) {
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
  cublasLtMatmulHeuristicResult_t found{};
  int num_found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, p.operation, p.first, p.second, p.out,
                                                               p.out, preference, 1, &found, &num_found);
  cublasLtMatmulPreferenceDestroy(preference);
  require<DeviceError>(status == CUBLAS_STATUS_SUCCESS && num_found == 1,
                       "cuBLASLt has no algorithm for a product of {} x {} x {} ({}, {}): {}", key.m, key.n,
                       key.k, name_of(key.type), name_of(key.out_type), cublasLtGetStatusString(status));
  return found.algo;
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
    p.algorithm = first_choice(handle_, key, p);
    return p;
  }

  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, Product> made_;
};

}  // namespace

void gemm_cuda(const OpContext& c, int64_t m, int64_t n, int64_t k, GemmOperand a, GemmOperand b,
               bool accumulate, void* out, DType out_type, void* workspace, int64_t workspace_bytes) {
  MOESAIC_CHECK(a.type == b.type && k > 0 && workspace_bytes >= kGemmWorkspace, "{} x {} x {}", m, n, k);
  MOESAIC_CHECK(a.type == DType::bf16 || (a.type == DType::f32 && out_type == DType::f32));
  if (m == 0 || n == 0) return;
  thread_local Products products;
  const Product& p = products.find({.m = m,
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
  const float alpha = 1, beta = accumulate ? 1 : 0;
  check(cublasLtMatmul(products.handle(), p.operation, &alpha, b.data, p.first, a.data, p.second, &beta, out,
                       p.out, out, p.out, &p.algorithm, workspace, static_cast<size_t>(workspace_bytes),
                       static_cast<cudaStream_t>(c.stream())),
        "a product");
}

}  // namespace moesaic::ops
