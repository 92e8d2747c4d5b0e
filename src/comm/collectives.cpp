#include "comm/collectives.h"

#include "base/check.h"
#include "device/op_context.h"

namespace moesaic::comm {
namespace {

/// Every byte of `moved` is read somewhere and written here; all but this rank's own share crosses a link. `added`: elements
/// whose share of this rank is added up.
Cost cost(const Communicator& group, double moved, int64_t added = 0) {
  const auto size = static_cast<double>(group.size());
  return {.work = Work::comm,
          .operations = static_cast<double>(added) * (size - 1) / size,
          .bytes = 2 * moved,
          .sent = moved * (size - 1) / size};
}

void add(Program& g, Stream stream, Communicator& group, std::string name, std::vector<Access> accesses,
         Cost cost, Post post) {
  g.add({.name = std::move(name),
         .streams = {stream},
         .accesses = std::move(accesses),
         .cost = cost,
         .post = std::move(post),
         .take_sequence = [&group] { return group.take_sequence(); }});
}

int64_t bytes_of(const Program& g, Handle h) {
  return g.info(h).bytes();
}

}  // namespace

void all_gather(Program& g, Stream stream, Communicator& group, Handle send, Handle recv,
                const std::string& what) {
  MOESAIC_CHECK(bytes_of(g, recv) == group.size() * bytes_of(g, send), "all_gather {}", what);
  add(g, stream, group, "all_gather " + what, {in(send), out(recv)},
      cost(group, static_cast<double>(bytes_of(g, recv))),
      [=, &group, bytes = bytes_of(g, send)](const OpContext& c, uint64_t sequence) {
        return group.all_gather({sequence, c.stream()}, c.in_bytes(send), c.out_bytes(recv), bytes);
      });
}

void all_gather_in_place(Program& g, Stream stream, Communicator& group, Handle whole,
                         const std::string& what) {
  const int64_t bytes = div_exact(bytes_of(g, whole), group.size());
  add(g, stream, group, "all_gather " + what, {inout(whole)},
      cost(group, static_cast<double>(bytes_of(g, whole))),
      [=, &group](const OpContext& c, uint64_t sequence) {
        std::byte* base = c.inout_bytes(whole);
        return group.all_gather({sequence, c.stream()}, base + group.rank() * bytes, base, bytes);
      });
}

void reduce_scatter(Program& g, Stream stream, Communicator& group, Handle send, Handle recv,
                    const std::string& what) {
  const int64_t count = g.shape(recv).numel();
  MOESAIC_CHECK(g.shape(send).numel() == group.size() * count && g.dtype(send) == g.dtype(recv),
                "reduce_scatter {}", what);
  add(g, stream, group, "reduce_scatter " + what, {in(send), out(recv)},
      cost(group, static_cast<double>(bytes_of(g, send)), g.shape(send).numel()),
      [=, &group, type = g.dtype(send)](const OpContext& c, uint64_t sequence) {
        return group.reduce_scatter({sequence, c.stream()}, c.in_bytes(send), c.out_bytes(recv), count, type);
      });
}

void reduce_scatter_in_place(Program& g, Stream stream, Communicator& group, Handle whole,
                             const std::string& what) {
  const int64_t count = div_exact(g.shape(whole).numel(), group.size());
  add(g, stream, group, "reduce_scatter " + what, {inout(whole)},
      cost(group, static_cast<double>(bytes_of(g, whole)), g.shape(whole).numel()),
      [=, &group, type = g.dtype(whole)](const OpContext& c, uint64_t sequence) {
        std::byte* base = c.inout_bytes(whole);
        return group.reduce_scatter({sequence, c.stream()}, base, base + group.rank() * count * size_of(type),
                                    count, type);
      });
}

void exchange_parts(Program& g, Stream stream, Communicator& group, Handle send, Handle recv,
                    const std::string& what) {
  const int64_t bytes = div_exact(bytes_of(g, send), group.size());
  MOESAIC_CHECK(bytes_of(g, recv) == (group.size() - 1) * bytes, "exchange_parts {}", what);
  const auto moved = static_cast<double>(bytes_of(g, recv));
  // This rank's own part stays, and may be written meanwhile.
  const int64_t count = g.shape(send).numel() / group.size(), before = group.rank() * count,
                after = g.shape(send).numel() - before - count;
  std::vector<Access> accesses{out(recv)};
  if (before > 0) accesses.push_back(in(g.view(send, 0, {before})));
  if (after > 0) accesses.push_back(in(g.view(send, before + count, {after})));
  MOESAIC_CHECK(accesses.size() > 1, "exchange_parts {} of one rank", what);
  const Handle sent = accesses[1].handle;
  const int64_t sent_at = before > 0 ? 0 : bytes;
  add(g, stream, group, "exchange_parts " + what, std::move(accesses),
      {.work = Work::comm, .bytes = 2 * moved, .sent = moved},
      [=, &group](const OpContext& c, uint64_t sequence) {
        return group.exchange_parts({sequence, c.stream()}, c.in_bytes(sent) - sent_at, c.out_bytes(recv),
                                    bytes);
      });
}

void all_reduce(Program& g, Stream stream, Communicator& group, Handle send, Handle recv,
                const std::string& what) {
  const int64_t count = g.shape(recv).numel();
  MOESAIC_CHECK(g.shape(send).numel() == count && g.dtype(send) == g.dtype(recv), "all_reduce {}", what);
  add(g, stream, group, "all_reduce " + what, {in(send), out(recv)},
      cost(group, 2 * static_cast<double>(bytes_of(g, send)), count),
      [=, &group, type = g.dtype(send)](const OpContext& c, uint64_t sequence) {
        return group.all_reduce({sequence, c.stream()}, c.in_bytes(send), c.out_bytes(recv), count, type);
      });
}

void all_to_all_blocks(Program& g, Stream stream, Communicator& group, Handle send, Handle recv,
                       std::vector<BlockCopy> copies, const std::string& what) {
  int64_t moved = 0;
  for (const BlockCopy& copy : copies) {
    MOESAIC_CHECK(copy.send_offset.size() == static_cast<size_t>(group.size()) &&
                      copy.recv_offset.size() == static_cast<size_t>(group.size()),
                  "all_to_all {}", what);
    moved += copy.outer * copy.rows * copy.width * group.size();
  }
  add(g, stream, group, "all_to_all " + what, {in(send), out(recv)}, cost(group, static_cast<double>(moved)),
      [=, &group, copies = std::move(copies)](const OpContext& c, uint64_t sequence) {
        return group.all_to_all_blocks({sequence, c.stream()}, c.in_bytes(send), c.out_bytes(recv), copies);
      });
}

void all_to_all_rows(Program& g, Stream stream, Communicator& group, Handle send, Handle send_offsets,
                     Handle recv, Handle recv_offsets, double expected_rows, const std::string& what) {
  const int64_t width = g.shape(recv)[-1] * size_of(g.dtype(recv));
  MOESAIC_CHECK(g.shape(send)[-1] == g.shape(recv)[-1] && g.dtype(send) == g.dtype(recv), "all_to_all {}",
                what);
  MOESAIC_CHECK(
      g.shape(send_offsets).numel() == group.size() + 1 && g.shape(recv_offsets).numel() == group.size() + 1,
      "all_to_all {}", what);
  add(g, stream, group, "all_to_all " + what, {in(send), in(send_offsets), out(recv), in(recv_offsets)},
      cost(group, expected_rows * static_cast<double>(width)),
      [=, &group, rows = g.shape(recv).rows()](const OpContext& c, uint64_t sequence) {
        return group.all_to_all_rows({sequence, c.stream()}, c.in_bytes(send), c.in<int32_t>(send_offsets),
                                     c.out_bytes(recv), c.in<int32_t>(recv_offsets), rows, width);
      });
}

}  // namespace moesaic::comm
