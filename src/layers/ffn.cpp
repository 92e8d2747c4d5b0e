#include "layers/ffn.h"

#include <cmath>

#include "ops/matmul/matmul.h"
#include "ops/swiglu/swiglu.h"

namespace moesaic {
namespace {
constexpr Stream kCompute = Stream::compute;
}

void add_ffn_parameters(ParameterTable& table, const ModelConfig& m, const std::string& prefix,
                        const std::string& name, int64_t ffn) {
  const double residual_std = m.init_std / std::sqrt(2.0 * static_cast<double>(m.num_layers));
  const std::string at = prefix + name;
  table.add({at + ".w1", {ffn, m.hidden}, Init::normal, m.init_std, true, at + ".w13"});
  table.add({at + ".w3", {ffn, m.hidden}, Init::normal, m.init_std, true, at + ".w13"});
  table.add({at + ".w2", {m.hidden, ffn}, Init::normal, residual_std, true, at + ".w2"});
}

void add_ffn_activations(ActivationTable& table, const LayerSpec& s, const std::string& name, int64_t ffn) {
  table.add({name + "_h13", "T 2F", {s.T, 2 * ffn}, s.dtype, Keep::selective, "FC1 and FC3"});
  table.add({name + "_fc2_in", "T F", {s.T, ffn}, s.dtype, Keep::none, "SwiGLU of " + name + "_h13"});
}

void ffn_forward(Pass& p, const std::string& name, int64_t ffn, Handle x, Handle y) {
  const int64_t D = p.spec.model.hidden;
  const Handle h13 = p.acts.make(name + "_h13"), fc2_in = p.acts.make(name + "_fc2_in");
  ops::matmul(p.g, kCompute, {.a = x, .b = p.weight(name + ".w13", {2 * ffn, D}), .c = h13, .trans_b = true});
  ops::swiglu_forward(p.g, kCompute, {.h = h13, .y = fc2_in, .expected_rows = static_cast<double>(p.spec.T)});
  ops::matmul(p.g, kCompute, {.a = fc2_in, .b = p.weight(name + ".w2", {D, ffn}), .c = y, .trans_b = true});
}

void ffn_backward(Pass& p, const std::string& name, int64_t ffn, Handle x, Handle d_y, Handle d_x) {
  const int64_t D = p.spec.model.hidden, T = p.spec.T;
  const Handle w13 = p.weight(name + ".w13", {2 * ffn, D}), w2 = p.weight(name + ".w2", {D, ffn});
  const Handle h13 = p.acts.need(name + "_h13", [&](Handle h) {
    ops::matmul(p.g, kCompute, {.a = x, .b = w13, .c = h, .trans_b = true});
  });
  const Handle fc2_in = p.acts.need(name + "_fc2_in", [&](Handle h) {
    ops::swiglu_forward(p.g, kCompute, {.h = h13, .y = h, .expected_rows = static_cast<double>(T)});
  });
  const Handle d_fc2_in = p.temp("d_" + name + "_fc2_in", {T, ffn}),
               d_h13 = p.temp("d_" + name + "_h13", {T, 2 * ffn});
  ops::matmul(p.g, kCompute, {.a = d_y, .b = w2, .c = d_fc2_in});
  ops::swiglu_backward(p.g, kCompute,
                       {.dy = d_fc2_in, .h = h13, .dh = d_h13, .expected_rows = static_cast<double>(T)});
  ops::matmul(p.g, kCompute, {.a = d_h13, .b = w13, .c = d_x});
  p.queue.push([&p, d_y, fc2_in, d_h13, x, dw2 = p.grad(name + ".w2", {D, ffn}),
                dw13 = p.grad(name + ".w13", {2 * ffn, D})] {
    ops::matmul(p.g, kCompute, {.a = d_y, .b = fc2_in, .c = dw2, .trans_a = true, .accumulate = p.adds});
    ops::matmul(p.g, kCompute, {.a = d_h13, .b = x, .c = dw13, .trans_a = true, .accumulate = p.adds});
  });
}

}  // namespace moesaic
