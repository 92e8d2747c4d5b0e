#include "layers/head_exchange.h"

#include <algorithm>

#include "comm/collectives.h"
#include "ops/kv_copies/kv_copies.h"

namespace moesaic {
namespace {

constexpr Stream kCompute = Stream::compute, kComm = Stream::comm;

/// One kind of head in a row of a token-sharded tensor and in a row of a head-sharded one; in heads.
struct HeadColumns {
  int64_t token_first;          // its first head in the token-sharded row ...
  int64_t head_first, count;    // ... and in the head-sharded row, where each rank holds `count` of them
  std::vector<int64_t> starts;  // [n] which of its heads rank r holds first
};

/// Copies of `sequences` from [*, S/n, token_width heads] on every rank to [*, S, head_width heads] (to_heads), or back.
BlockCopy head_copy(const LayerSpec& spec, const HeadColumns& c, int64_t sequences, int64_t token_width,
                    int64_t head_width, bool to_heads) {
  const int64_t head = spec.model.head_dim * size_of(spec.dtype), shard = spec.S / spec.n;
  std::vector<int64_t> in_tokens, in_heads;
  for (int64_t r = 0; r < spec.n; ++r) {
    in_tokens.push_back((c.token_first + c.starts[static_cast<size_t>(r)]) * head);
    in_heads.push_back((r * shard * head_width + c.head_first) * head);
  }
  BlockCopy copy{.outer = sequences, .rows = shard, .width = c.count * head};
  copy.send_offset = to_heads ? in_tokens : in_heads;
  copy.recv_offset = to_heads ? in_heads : in_tokens;
  const int64_t token_pitch = token_width * head, head_pitch = head_width * head;
  copy.send_pitch = to_heads ? token_pitch : head_pitch;
  copy.recv_pitch = to_heads ? head_pitch : token_pitch;
  copy.send_outer = (to_heads ? shard : spec.S) * copy.send_pitch;
  copy.recv_outer = (to_heads ? spec.S : shard) * copy.recv_pitch;
  return copy;
}

std::vector<int64_t> starts(int64_t n, int64_t heads) {
  std::vector<int64_t> first;
  for (int64_t r = 0; r < n; ++r) first.push_back(r * heads / n);
  return first;
}

}  // namespace

std::vector<Sequences> halves(const LayerSpec& spec) {
  const int64_t B = spec.attention_batch;
  if (!spec.exchanges_heads() || !spec.in_parts() || B == 1) return {{0, B}};
  return {{0, B / 2}, {B / 2, B - B / 2}};
}

Handle part(Pass& p, Handle whole, Sequences which) {
  const Shape& shape = p.g.shape(whole);
  const int64_t B = p.spec.attention_batch, count = div_exact(shape.numel(), B);
  const int64_t first = div_exact(shape[0], B) * which.count;
  return p.g.view(
      whole, which.first * count,
      shape.num_dims() < 3 ? Shape{first, which.count * count / first} : Shape{first, shape[1], shape[2]});
}

void exchange_heads(Pass& p, Sequences which, Handle from, Handle to, bool to_heads,
                    const std::string& what) {
  const int64_t H = p.spec.model.num_heads, Hl = p.spec.local_heads;
  const HeadColumns columns{0, 0, Hl, starts(p.spec.n, H)};
  comm::all_to_all_blocks(p.g, kComm, *p.spec.groups.n, part(p, from, which), part(p, to, which),
                          {head_copy(p.spec, columns, which.count, H, Hl, to_heads)}, what);
}

void exchange_qkv(Pass& p, Sequences which, Handle qkv, Handle qkv_x) {
  const auto& s = p.spec;
  const int64_t H = s.model.num_heads, G = s.model.num_kv_heads, Hl = s.local_heads, Gl = s.local_kv_heads;
  std::vector<BlockCopy> copies;
  for (const HeadColumns& c : {HeadColumns{0, 0, Hl, starts(s.n, H)}, HeadColumns{H, Hl, Gl, starts(s.n, G)},
                               HeadColumns{H + G, Hl + Gl, Gl, starts(s.n, G)}})
    copies.push_back(head_copy(s, c, which.count, H + 2 * G, Hl + 2 * Gl, true));
  comm::all_to_all_blocks(p.g, kComm, *s.groups.n, part(p, qkv, which), part(p, qkv_x, which),
                          std::move(copies), "qkv");
}

DqkvReturn::DqkvReturn(Pass& p, Handle d_qkv)
    : p_(p),
      d_qkv_(d_qkv),
      num_copies_(std::max<int64_t>(p.spec.n / p.spec.model.num_kv_heads, 1)),
      heads_(p.spec.model.num_heads),
      wide_(p.spec.model.num_kv_heads * num_copies_),
      to_(num_copies_ == 1
              ? d_qkv
              : p.temp("d_qkv_copies", {p.spec.T, (heads_ + 2 * wide_) * p.spec.model.head_dim})) {}

void DqkvReturn::send(Sequences which, Handle d_qkv_x) {
  const auto& s = p_.spec;
  const int64_t Hl = s.local_heads, Gl = s.local_kv_heads;
  std::vector<BlockCopy> copies;
  for (const HeadColumns& c :
       {HeadColumns{0, 0, Hl, starts(s.n, heads_)}, HeadColumns{heads_, Hl, Gl, starts(s.n, wide_)},
        HeadColumns{heads_ + wide_, Hl + Gl, Gl, starts(s.n, wide_)}})
    copies.push_back(head_copy(s, c, which.count, heads_ + 2 * wide_, Hl + 2 * Gl, false));
  comm::all_to_all_blocks(p_.g, kComm, *s.groups.n, part(p_, d_qkv_x, which), part(p_, to_, which),
                          std::move(copies), "d_qkv");
}

void DqkvReturn::finish() {
  if (num_copies_ > 1)
    ops::sum_kv_copies(p_.g, kCompute,
                       {.x = to_,
                        .y = d_qkv_,
                        .num_heads = heads_,
                        .num_kv_heads = p_.spec.model.num_kv_heads,
                        .num_copies = num_copies_,
                        .head_dim = p_.spec.model.head_dim});
}

}  // namespace moesaic
