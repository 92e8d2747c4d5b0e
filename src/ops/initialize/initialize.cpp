#include "ops/initialize/initialize.h"

#include "ops/initialize/initialize_bodies.h"
#include "ops/op.h"

namespace moesaic::ops {

void initialize(Program& g, Stream stream, const Initialize& args) {
  MOESAIC_CHECK(is_float(g.dtype(args.y)), "{}", g.info(args.y).name);
  MOESAIC_CHECK(!args.remainder || (g.dtype(args.y) == DType::bf16 && g.dtype(args.remainder) == DType::u16 &&
                                    g.shape(args.remainder).numel() == g.shape(args.y).numel()),
                "{}", g.info(args.y).name);
  g.add({.name = "initialize",
         .streams = {stream},
         .accesses = accesses({out(args.y), out(args.remainder)}),
         .cost = {.operations = (args.std == 0 ? 0 : 8) * elements(g, args.y),
                  .bytes = bytes_of(g, {args.y, args.remainder})},
         .run = body(g, initialize_cpu, initialize_cuda, args)});
}

}  // namespace moesaic::ops
