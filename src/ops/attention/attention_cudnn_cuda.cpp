#define CUDNN_FRONTEND_SKIP_JSON_LIB  // it only saves graphs
#include <cudnn_frontend.h>

#include <cmath>
#include <map>
#include <memory>
#include <unordered_map>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "ops/attention/attention_cudnn.h"

namespace moesaic::ops::attention {
namespace {

using cudnn_frontend::DataType_t;
using cudnn_frontend::error_code_t;
using cudnn_frontend::graph::Graph;
using cudnn_frontend::graph::SDPA_attributes;
using cudnn_frontend::graph::SDPA_backward_attributes;
using cudnn_frontend::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Tensor_attributes>;

enum Id : int64_t { kQ = 1, kK, kV, kO, kLse, kDO, kDQ, kDK, kDV };

/// cuDNN's handle of this thread.
class Handle {
 public:
  Handle() {
    const cudnnStatus_t status = cudnnCreate(&handle_);
    require<DeviceError>(status == CUDNN_STATUS_SUCCESS, "starting cuDNN failed: {}",
                         cudnnGetErrorString(status));
  }
  ~Handle() { cudnnDestroy(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  cudnnHandle_t get() const { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;
};

struct Prepared {
  std::unique_ptr<Graph> graph;  // null: cuDNN has no kernel for it
  int64_t workspace = 0;         // bytes
  int64_t skipped = 0;           // bytes at its front that stay unused
};

struct Library {
  Handle handle;
  std::map<CudnnLaunch, Prepared> prepared;
};

Library& library() {
  thread_local Library of_thread;
  return of_thread;
}

std::string text(const CudnnLaunch& l) {
  return fmt::format("the {} attention of {} x {} tokens, {} over {} heads of width {}",
                     l.backward ? "backward" : "forward", l.sequences, l.S, l.groups * (l.H / l.G), l.groups,
                     l.A);
}

[[noreturn]] void failed(const CudnnLaunch& launch, const char* what, const std::string& message) {
  fail<DeviceError>("cuDNN failed at {} {}: {}", what, text(launch), message);
}

/// `heads` neighbouring heads [sequences, heads, S, A] of a row that is `width` elements wide.
Tensor_attributes heads(const CudnnLaunch& l, Id id, int64_t count, int64_t width) {
  return Tensor_attributes()
      .set_uid(id)
      .set_dim({l.sequences, count, l.S, l.A})
      .set_stride({l.S * width, l.A, width, 1})
      .set_data_type(DataType_t::BFLOAT16);
}

Tensor_attributes statistics(const CudnnLaunch& l) {
  const int64_t count = l.groups * (l.H / l.G);
  return Tensor_attributes()
      .set_uid(kLse)
      .set_dim({l.sequences, count, l.S, 1})
      .set_stride({count * l.S, l.S, 1, 1})
      .set_data_type(DataType_t::FLOAT);
}

void make_output(const Tensor& made, const Tensor_attributes& like) {
  made->set_output(true)
      .set_uid(like.get_uid())
      .set_dim(like.get_dim())
      .set_stride(like.get_stride())
      .set_data_type(like.get_data_type());
}

std::unique_ptr<Graph> describe(const CudnnLaunch& l) {
  const int64_t row = (l.H + 2 * l.G) * l.A, o_row = l.H * l.A, num_q = l.groups * (l.H / l.G);
  const float scale = 1 / std::sqrt(static_cast<float>(l.A));
  auto graph = std::make_unique<Graph>();
  graph->set_io_data_type(DataType_t::BFLOAT16)
      .set_intermediate_data_type(DataType_t::FLOAT)
      .set_compute_data_type(DataType_t::FLOAT);
  const Tensor q = graph->tensor(heads(l, kQ, num_q, row)), k = graph->tensor(heads(l, kK, l.groups, row)),
               v = graph->tensor(heads(l, kV, l.groups, row));
  if (!l.backward) {
    // The causal mask: a query sees no key to the right of the diagonal that starts at the top left.
    const auto [o, lse] =
        graph->sdpa(q, k, v,
                    SDPA_attributes()
                        .set_name("attention")
                        .set_generate_stats(true)
                        .set_attn_scale(scale)
                        .set_diagonal_alignment(cudnn_frontend::DiagonalAlignment_t::TOP_LEFT)
                        .set_diagonal_band_right_bound(0));
    make_output(o, heads(l, kO, num_q, o_row));
    make_output(lse, statistics(l));
    return graph;
  }
  const auto [d_q, d_k, d_v] =
      graph->sdpa_backward(q, k, v, graph->tensor(heads(l, kO, num_q, o_row)),
                           graph->tensor(heads(l, kDO, num_q, o_row)), graph->tensor(statistics(l)),
                           SDPA_backward_attributes()
                               .set_name("attention backward")
                               .set_attn_scale(scale)
                               .set_diagonal_alignment(cudnn_frontend::DiagonalAlignment_t::TOP_LEFT)
                               .set_diagonal_band_right_bound(0)
                               .set_deterministic_algorithm(l.deterministic));
  make_output(d_q, heads(l, kDQ, num_q, row));
  make_output(d_k, heads(l, kDK, l.groups, row));
  make_output(d_v, heads(l, kDV, l.groups, row));
  return graph;
}

/// The graph with a kernel chosen; null, and a line in the log, when there is none.
std::unique_ptr<Graph> build(const CudnnLaunch& launch, cudnnHandle_t handle) {
  std::unique_ptr<Graph> graph = describe(launch);
  cudnn_frontend::error_t status;
  try {
    status = graph->build(handle, {cudnn_frontend::HeurMode_t::A});
  } catch (const std::exception& error) {
    failed(launch, "preparing", error.what());
  }
  if (status.is_good()) return graph;
  const error_code_t code = status.get_code();
  const std::string message = status.get_message();
  const bool refused = code == error_code_t::GRAPH_NOT_SUPPORTED ||
                       code == error_code_t::HEURISTIC_QUERY_FAILED ||
                       code == error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED ||
                       message.find("CUDNN_STATUS_NOT_SUPPORTED") != std::string::npos;
  if (!refused) failed(launch, "preparing", message);
  log_warning("cuDNN does not do {}, so a slower kernel of ours does ({})", text(launch), message);
  return nullptr;
}

/// Bytes that cudnn-frontend puts in front of cuDNN's own workspace: sums of d_o * o, and d_q in FP32 unless deterministic.
int64_t front_bytes(const CudnnLaunch& l) {
  return l.backward ? 4 * l.sequences * l.groups * (l.H / l.G) * l.S * (l.deterministic ? 1 : 1 + l.A) : 0;
}

const Prepared& prepared(const CudnnLaunch& launch) {
  Library& mine = library();
  const auto known = mine.prepared.find(launch);
  if (known != mine.prepared.end()) return known->second;
  Prepared made{.graph = build(launch, mine.handle.get())};
  if (made.graph) {
    auto status = made.graph->get_workspace_size(made.workspace);
    if (status.is_bad()) failed(launch, "asking for the workspace of", status.get_message());
    made.skipped = round_up(front_bytes(launch), 256) - front_bytes(launch);
    made.workspace += made.skipped;
  }
  return mine.prepared.emplace(launch, std::move(made)).first->second;
}

}  // namespace

std::optional<int64_t> prepare_cudnn(const CudnnLaunch& launch) {
  const Prepared& found = prepared(launch);
  if (!found.graph) return std::nullopt;
  return found.workspace;
}

void run_cudnn(const CudnnLaunch& launch, void* stream, const CudnnTensors& tensors, void* workspace) {
  const Prepared& found = prepared(launch);
  MOESAIC_CHECK(found.graph != nullptr, "{}", text(launch));
  const cudnnHandle_t handle = library().handle.get();
  const cudnnStatus_t set = cudnnSetStream(handle, static_cast<cudaStream_t>(stream));
  if (set != CUDNN_STATUS_SUCCESS) failed(launch, "choosing a stream for", cudnnGetErrorString(set));
  const auto input = [](const void* p) { return const_cast<void*>(p); };
  std::unordered_map<int64_t, void*> pointers{{kQ, input(tensors.q)},
                                              {kK, input(tensors.k)},
                                              {kV, input(tensors.v)},
                                              {kO, tensors.o},
                                              {kLse, tensors.lse}};
  if (launch.backward)
    pointers.insert({{kDO, input(tensors.d_o)}, {kDQ, tensors.d_q}, {kDK, tensors.d_k}, {kDV, tensors.d_v}});
  std::byte* from = static_cast<std::byte*>(workspace);
  auto status = found.graph->execute(handle, pointers, from == nullptr ? nullptr : from + found.skipped);
  if (status.is_bad()) failed(launch, "launching", status.get_message());
}

}  // namespace moesaic::ops::attention
