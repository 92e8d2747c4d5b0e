// Which kernel does what: cuDNN whole sequences in BF16, the kernels of attention_kernels.h the rest.
#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "ops/attention/attention_bodies.h"
#include "ops/attention/attention_cudnn.h"
#include "ops/attention/attention_kernels.h"
#include "ops/op.h"

namespace moesaic::ops {
namespace {

using namespace attention;

/// The largest divisor of count that is at most `most`, and at least 1.
int64_t largest_divisor(int64_t count, int64_t most) {
  int64_t divisor = std::clamp<int64_t>(most, 1, count);
  while (count % divisor != 0) --divisor;
  return divisor;
}

/// cuDNN's launch, over all heads of all sequences.
template <class Args>
CudnnLaunch whole_launch(const Shape& qkv, const Args& args, bool backward) {
  return {.sequences = qkv[0],
          .groups = args.num_kv_heads,
          .S = qkv[1],
          .H = args.num_heads,
          .G = args.num_kv_heads,
          .A = args.head_dim,
          .backward = backward,
          .deterministic = true};
}

/// Whether cuDNN may be asked: it reads heads by 16 bytes and knows no documents. One token is no work worth its launch.
template <class Args>
bool suits_cudnn(DType type, const Shape& qkv, const Args& args) {
  return type == DType::bf16 && !args.doc_start && args.head_dim % 8 == 0 && args.head_dim <= 256 &&
         qkv[1] > 1;
}

std::optional<CudnnLaunch> choose(DType type, const Shape& qkv, const AttentionForward& args) {
  if (!suits_cudnn(type, qkv, args)) return std::nullopt;
  return whole_launch(qkv, args, false);
}

/// Deterministically, cuDNN holds an S x S matrix in BF16 per query head, its sides rounded up to tiles: bytes for the heads
/// of one key/value head.
int64_t bytes_of_group(int64_t S, const AttentionBackward& args) {
  return 2 * round_up(S, 64) * round_up(S, 128) * (args.num_heads / args.num_kv_heads);
}

std::optional<CudnnLaunch> choose(DType type, const Shape& qkv, const AttentionBackward& args) {
  if (!suits_cudnn(type, qkv, args)) return std::nullopt;
  CudnnLaunch launch = whole_launch(qkv, args, true);
  launch.deterministic = args.tuning.deterministic;
  if (launch.deterministic) {
    const int64_t of_group = bytes_of_group(launch.S, args);
    if (of_group > 4 * args.tuning.workspace) return std::nullopt;
    const int64_t groups = args.tuning.workspace / of_group;  // that fit into one launch
    launch.sequences = largest_divisor(launch.sequences, groups / launch.G);
    if (groups < launch.G) launch.groups = largest_divisor(launch.G, groups);
  }
  // cuDNN's own workspace follows that many floats and must be aligned.
  if (launch.sequences * launch.groups * (launch.H / launch.G) * launch.S % 4 != 0) return std::nullopt;
  return launch;
}

/// The launch if cuDNN has a kernel for it.
template <class Args>
std::optional<CudnnLaunch> cudnn_launch(DType type, const Shape& qkv, const Args& args) {
  const std::optional<CudnnLaunch> launch = choose(type, qkv, args);
  return launch && prepare_cudnn(*launch) ? launch : std::nullopt;
}

template <class Args>
void check_width(const Args& args) {
  require<ConfigError>(args.head_dim <= kWidestPlain,
                       "attention on a GPU takes heads of width {} at most, not {}", kWidestPlain,
                       args.head_dim);
}

template <class Args>
Problem problem(const OpContext& c, const Args& args) {
  const Shape& qkv = c.shape(args.qkv);
  return {.B = qkv[0],
          .S = static_cast<int>(qkv[1]),
          .H = static_cast<int>(args.num_heads),
          .G = static_cast<int>(args.num_kv_heads),
          .A = static_cast<int>(args.head_dim),
          .doc_start = args.doc_start ? c.in<int32_t>(args.doc_start) : nullptr,
          .stream = static_cast<cudaStream_t>(c.stream())};
}

const __nv_bfloat16* kernel_pointer(const bf16* p) {
  return reinterpret_cast<const __nv_bfloat16*>(p);
}
__nv_bfloat16* kernel_pointer(bf16* p) {
  return reinterpret_cast<__nv_bfloat16*>(p);
}
template <class T>
T* kernel_pointer(T* p) {
  return p;
}

/// f(first sequence, first key/value head) for every launch.
template <class F>
void for_each_part(const CudnnLaunch& launch, int64_t B, const F& f) {
  for (int64_t b = 0; b < B; b += launch.sequences)
    for (int64_t group = 0; group < launch.G; group += launch.groups) f(b, group);
}

void run(const OpContext& c, const AttentionForward& args, const CudnnLaunch& l) {
  const int64_t A = l.A;
  const bf16* qkv = c.in<bf16>(args.qkv);
  run_cudnn(l, c.stream(),
            {.q = qkv,
             .k = qkv + l.H * A,
             .v = qkv + (l.H + l.G) * A,
             .o = c.out<bf16>(args.o),
             .lse = c.out<float>(args.lse)},
            args.scratch ? c.out_bytes(args.scratch) : nullptr);
}

void run(const OpContext& c, const AttentionBackward& args, const CudnnLaunch& l) {
  const int64_t A = l.A, S = l.S, H = l.H, row = (H + 2 * l.G) * A;
  const bf16 *qkv = c.in<bf16>(args.qkv), *o = c.in<bf16>(args.o), *d_o = c.in<bf16>(args.d_o);
  const float* lse = c.in<float>(args.lse);
  bf16* d_qkv = c.out<bf16>(args.d_qkv);
  std::byte* scratch = args.scratch ? c.out_bytes(args.scratch) : nullptr;
  for_each_part(l, c.shape(args.qkv)[0], [&](int64_t b, int64_t group) {
    const int64_t head = group * (H / l.G), at = b * S * row, o_at = (b * S * H + head) * A;
    const int64_t q = at + head * A, k = at + (H + group) * A, v = k + l.G * A;
    run_cudnn(l, c.stream(),
              {.q = qkv + q,
               .k = qkv + k,
               .v = qkv + v,
               .o = const_cast<bf16*>(o) + o_at,
               .lse = const_cast<float*>(lse) + (b * H + head) * S,
               .d_o = d_o + o_at,
               .d_q = d_qkv + q,
               .d_k = d_qkv + k,
               .d_v = d_qkv + v},
              scratch);
  });
}

}  // namespace

int64_t attention_forward_scratch(const Program& g, const AttentionForward& args) {
  check_width(args);
  const std::optional<CudnnLaunch> launch = choose(g.dtype(args.qkv), g.shape(args.qkv), args);
  return launch ? prepare_cudnn(*launch).value_or(0) : 0;
}

int64_t attention_backward_scratch(const Program& g, const AttentionBackward& args) {
  check_width(args);
  const DType type = g.dtype(args.qkv);
  const Shape& qkv = g.shape(args.qkv);
  if (suits_cudnn(type, qkv, args) && args.tuning.deterministic &&
      bytes_of_group(qkv[1], args) > 4 * args.tuning.workspace)
    log_warning(
        "cuDNN's deterministic backward of attention over {} tokens works in {:.1f} GiB per key/value head; "
        "a slower kernel runs instead, AttentionTuning has the other choices",
        qkv[1], static_cast<double>(bytes_of_group(qkv[1], args)) / (1 << 30));
  const std::optional<CudnnLaunch> launch = cudnn_launch(type, qkv, args);
  return launch ? *prepare_cudnn(*launch) : g.info(args.lse).bytes();
}

void attention_forward_cuda(const OpContext& c, const AttentionForward& args) {
  const DType type = c.dtype(args.qkv);
  if (const auto launch = cudnn_launch(type, c.shape(args.qkv), args)) return run(c, args, *launch);
  const Problem p = problem(c, args);
  with_float(type, [&](auto zero) {
    using T = decltype(zero);
    const ForwardTensors t{kernel_pointer(c.in<T>(args.qkv)), kernel_pointer(c.out<T>(args.o)),
                           c.out<float>(args.lse)};
    if constexpr (std::is_same_v<T, bf16>)
      if (p.A <= kWidestTile) return tile_forward(p, t);
    plain_forward(p, t);
  });
}

void attention_backward_cuda(const OpContext& c, const AttentionBackward& args) {
  const DType type = c.dtype(args.qkv);
  if (const auto launch = cudnn_launch(type, c.shape(args.qkv), args)) return run(c, args, *launch);
  const Problem p = problem(c, args);
  float* delta = reinterpret_cast<float*>(c.out_bytes(args.scratch));
  with_float(type, [&](auto zero) {
    using T = decltype(zero);
    const BackwardTensors t{kernel_pointer(c.in<T>(args.d_o)),    kernel_pointer(c.in<T>(args.qkv)),
                            kernel_pointer(c.in<T>(args.o)),      c.in<float>(args.lse),
                            kernel_pointer(c.out<T>(args.d_qkv)), delta};
    if constexpr (std::is_same_v<T, bf16>)
      if (p.A <= kWidestTile) return tile_backward(p, t);
    plain_backward(p, t);
  });
}

}  // namespace moesaic::ops
