#pragma once
// Holds the cost that an op declares against two counts of its own: the bytes against the node's accesses, the operations
// against the op's formula, written over Counted. The formula must give what the op gives, so it is that op's.
//
//   expect_cost({5, 40}, [](int64_t count) {
//     CostCheck c;
//     const Handle a = c.random({count}), b = c.random({count}), y = c.blank({count});
//     ops::add(c.program(), Stream::compute, a, b, y);
//     return c.left_out([&] { return Outputs{{y, sum(c.numbers(a), c.numbers(b))}}; });
//   });
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <utility>

#include "support/counted.h"
#include "support/op_runner.h"

namespace moesaic::test {

/// What the formula says that tensors hold after the op: all of each, or its first elements.
using Outputs = std::vector<std::pair<Handle, Numbers>>;

class CostCheck : public OpRunner {
 public:
  /// `type`: of activations.
  explicit CostCheck(DType type = DType::f32) : type_(type) {}

  Handle random(Shape shape) { return tensor("random", shape, randn(shape.numel(), ++seed_), type_); }
  Handle blank(Shape shape) { return tensor("blank", shape, {}, type_); }
  Handle random_f32(Shape shape) { return tensor("random", shape, randn(shape.numel(), ++seed_)); }
  Handle blank_f32(Shape shape) { return tensor("blank", shape); }
  /// first, first + step, ... modulo `below`.
  Handle count_up(Shape shape, int32_t below, int32_t step = 1, int32_t first = 0) {
    std::vector<int32_t> values;
    for (int64_t i = 0; i < shape.numel(); ++i)
      values.push_back(static_cast<int32_t>((first + i * step) % below));
    return ints("count", shape, values);
  }

  Numbers numbers(Handle h) {
    if (!h) return {};
    if (program().dtype(h) == DType::i32) {
      const auto values = get_ints(h);
      return {values.begin(), values.end()};
    }
    const auto values = get(h);
    return {values.begin(), values.end()};
  }
  Numbers row(Handle h, int64_t index) {
    if (!h) return {};
    const Numbers all = numbers(h);
    const auto width = program().shape(h)[-1];
    return {all.begin() + index * width, all.begin() + (index + 1) * width};
  }

  /// An exception: of this tensor the op moves so many bytes, because of `why`.
  void moves_only(Handle h, double bytes, const char* why) { moved_[h.index] = {bytes, why}; }

  /// Of the one op recorded: checks its bytes; runs it and compares with the formula; returns the operations that the
  /// formula makes above those that the op declares.
  template <class F>
  double left_out(const F& formula) {
    const Node& node = program().nodes().at(0);
    expect_bytes();
    const int64_t before = Counted::operations();
    const Outputs outputs = formula();
    const auto operations = static_cast<double>(Counted::operations() - before);
    run();
    for (const auto& [h, expected] : outputs) {
      std::vector<float> got, want;
      const Numbers all = numbers(h);
      for (size_t i = 0; i < expected.size(); ++i) {
        got.push_back(static_cast<float>(all[i].value()));
        want.push_back(static_cast<float>(expected[i].value()));
      }
      EXPECT_LT(relative_error(got, want), program().dtype(h) == DType::bf16 ? 1.0 / 256 : 1e-5) << node.name;
    }
    return operations - node.cost.operations;
  }

  /// What is read or written counts once, what is updated twice.
  void expect_bytes() {
    const Node& node = program().nodes().at(0);
    double bytes = 0;
    std::string exceptions;
    for (const Access& access : node.accesses) {
      const auto partly = moved_.find(access.handle.index);
      const auto once = partly != moved_.end() ? partly->second.first
                                               : static_cast<double>(program().info(access.handle).bytes());
      if (partly != moved_.end()) exceptions += fmt::format("; {} bytes: {}", once, partly->second.second);
      bytes += (access.mode == Mode::inout ? 2 : 1) * once;
    }
    EXPECT_EQ(node.cost.bytes, bytes) << node.name << exceptions;
  }

 private:
  DType type_;
  uint64_t seed_ = 0;
  std::map<int32_t, std::pair<double, const char*>> moved_;
};

/// left_out(size) is small and the same at every size: what rows need once, whatever their width.
template <class F>
void expect_cost(std::initializer_list<int64_t> sizes, const F& left_out) {
  std::optional<double> first;
  for (const int64_t size : sizes) {
    const double more = left_out(size);
    if (!first) first = more;
    EXPECT_EQ(more, *first) << "size " << size;
    EXPECT_TRUE(more >= 0 && more < 30) << more;
  }
}

}  // namespace moesaic::test
