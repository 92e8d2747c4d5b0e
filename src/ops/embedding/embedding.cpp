#include "ops/embedding/embedding.h"

#include <algorithm>

#include "ops/embedding/embedding_bodies.h"
#include "ops/op.h"

namespace moesaic::ops {
namespace {

void check(const Program& g, Handle tokens, Handle table, Handle x) {
  MOESAIC_CHECK(g.dtype(tokens) == DType::i32 && g.shape(tokens).numel() == g.shape(x).rows());
  MOESAIC_CHECK(g.shape(table).num_dims() == 2 && g.shape(table)[1] == g.shape(x)[-1], "{} for rows of {}",
                g.shape(table).str(), g.shape(x).str());
}

}  // namespace

void embedding_forward(Program& g, Stream stream, const EmbeddingForward& args) {
  check(g, args.tokens, args.table, args.x);
  MOESAIC_CHECK(is_float(g.dtype(args.x)) && g.dtype(args.table) == g.dtype(args.x));
  g.add({.name = "embedding_forward",
         .streams = {stream},
         .accesses = {in(args.tokens), in(args.table), out(args.x)},
         .cost = {.bytes = bytes_of(g, {args.tokens, args.x, args.x})},
         .run = body(g, embedding_forward_cpu, embedding_forward_cuda, args)});
}

void embedding_backward(Program& g, Stream stream, const EmbeddingBackward& given) {
  EmbeddingBackward args = given;
  check(g, args.tokens, args.dtable, args.dx);
  MOESAIC_CHECK(is_float(g.dtype(args.dx)) && g.dtype(args.dtable) == DType::f32);
  const int64_t num_tokens = g.shape(args.dx).rows();
  if (num_tokens > 0)
    args.scratch = scratch(g, "embedding_backward",
                           3 * embedding_list_bytes(num_tokens) + embedding_sort_bytes(num_tokens));
  const Shape &dx = g.shape(args.dx), &dtable = g.shape(args.dtable);
  const auto touched = static_cast<double>(std::min(dx.rows(), dtable[0]) * dtable[1]);
  g.add({.name = "embedding_backward",
         .streams = {stream},
         .accesses = accesses({in(args.tokens), in(args.dx), inout(args.dtable), out(args.scratch)}),
         .cost = {.operations = static_cast<double>(dx.numel()),
                  .bytes = bytes_of(g, {args.tokens, args.dx}) + 2 * 4 * touched},
         .run = body(g, embedding_backward_cpu, embedding_backward_cuda, args)});
}

}  // namespace moesaic::ops
