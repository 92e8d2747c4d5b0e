#include "ops/optimizer/optimizer.h"

#include "ops/op.h"
#include "ops/optimizer/optimizer_bodies.h"

namespace moesaic::ops {
namespace {

void check(const Program& g, Handle h, DType type, int64_t count) {
  MOESAIC_CHECK(g.dtype(h) == type && g.shape(h).numel() == count, "{} is {} {}, expected {} elements of {}",
                g.info(h).name, name_of(g.dtype(h)), g.shape(h).str(), count, name_of(type));
}

/// Checks the shard and its optional state, and returns the accesses to them.
std::vector<Access> shard_accesses(const Program& g, const OptimizerShard& s,
                                   std::initializer_list<Handle> state) {
  const int64_t N = g.shape(s.param).numel();
  MOESAIC_CHECK(is_float(g.dtype(s.param)));
  MOESAIC_CHECK(bool(s.remainder) == (g.dtype(s.param) == DType::bf16),
                "a remainder belongs to bf16 parameters");
  if (s.remainder) check(g, s.remainder, DType::u16, N);
  check(g, s.grad, DType::f32, N);
  for (size_t i = 0; i < s.decay.size(); ++i)
    MOESAIC_CHECK((i == 0 ? 0 : s.decay[i - 1].end) <= s.decay[i].begin &&
                      s.decay[i].begin < s.decay[i].end && s.decay[i].end <= N,
                  "decay from {} to {} of {}", s.decay[i].begin, s.decay[i].end, N);
  check(g, s.scalars, DType::f32, 3);
  check(g, s.clip_scale, DType::f32, 1);
  check(g, s.ok, DType::i32, 1);
  std::vector<Access> list =
      accesses({inout(s.param), inout(s.remainder), in(s.grad), in(s.scalars), in(s.clip_scale), in(s.ok)});
  for (Handle h : state)
    if (h) {
      check(g, h, DType::f32, N);
      list.push_back(inout(h));
    }
  return list;
}

double decayed(const OptimizerShard& s, float weight_decay) {
  double sum = 0;
  for (const ElementRange& r : s.decay) sum += static_cast<double>(r.end - r.begin);
  return weight_decay == 0 ? 0 : sum;
}

/// What is updated is read and written.
double bytes_of(const Program& g, const std::vector<Access>& list) {
  double sum = 0;
  for (const Access& access : list)
    sum += (access.mode == Mode::inout ? 2 : 1) * static_cast<double>(g.info(access.handle).bytes());
  return sum;
}

}  // namespace

void adamw(Program& g, Stream stream, const AdamW& args) {
  MOESAIC_CHECK(args.m && args.v);
  std::vector<Access> list = shard_accesses(g, args.shard, {args.m, args.v});
  const Cost cost{
      .operations = 15 * elements(g, args.shard.param) + 2 * decayed(args.shard, args.weight_decay),
      .bytes = bytes_of(g, list)};
  g.add({.name = "adamw",
         .streams = {stream},
         .accesses = std::move(list),
         .cost = cost,
         .run = body(g, adamw_cpu, adamw_cuda, args)});
}

void sgd(Program& g, Stream stream, const Sgd& args) {
  MOESAIC_CHECK(bool(args.momentum_buffer) == (args.momentum != 0), "momentum {} and its buffer",
                args.momentum);
  std::vector<Access> list = shard_accesses(g, args.shard, {args.momentum_buffer});
  const Cost cost{.operations = (args.momentum_buffer ? 5 : 3) * elements(g, args.shard.param) +
                                2 * decayed(args.shard, args.weight_decay),
                  .bytes = bytes_of(g, list)};
  g.add({.name = "sgd",
         .streams = {stream},
         .accesses = std::move(list),
         .cost = cost,
         .run = body(g, sgd_cpu, sgd_cuda, args)});
}

}  // namespace moesaic::ops
