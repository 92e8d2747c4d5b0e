#include "ops/elementwise/elementwise_bodies.h"

#include <algorithm>

#include "ops/cpu_op.h"

namespace moesaic::ops {
namespace {

/// f(first, size) for pieces of `count` that are worth a thread's while.
template <class F>
void in_pieces(int64_t count, const F& f) {
  constexpr int64_t kPiece = 1 << 15;
  parallel_for(ceil_div(count, kPiece),
               [&](int64_t i) { f(i * kPiece, std::min(kPiece, count - i * kPiece)); });
}

template <class A, class B, class Y>
void add(const A* a, const B* b, Y* y, int64_t count) {
  in_pieces(count, [&](int64_t first, int64_t size) {
    for (int64_t i = first; i < first + size; ++i)
      y[i] = static_cast<Y>(static_cast<float>(a[i]) + static_cast<float>(b[i]));
  });
}

}  // namespace

void zero_cpu(const OpContext& c, const Zero& args) {
  std::byte* y = c.out_bytes(args.y);
  in_pieces(c.shape(args.y).numel() * size_of(c.dtype(args.y)),
            [&](int64_t first, int64_t size) { std::memset(y + first, 0, static_cast<size_t>(size)); });
}

void copy_cpu(const OpContext& c, const Copy& args) {
  const int64_t count = c.shape(args.y).numel();
  if (c.dtype(args.x) == c.dtype(args.y)) {
    const std::byte* x = c.in_bytes(args.x);
    std::byte* y = c.out_bytes(args.y);
    in_pieces(count * size_of(c.dtype(args.y)), [&](int64_t first, int64_t size) {
      std::memcpy(y + first, x + first, static_cast<size_t>(size));
    });
    return;
  }
  with_float(c.dtype(args.x), [&](auto x_zero) {
    with_float(c.dtype(args.y), [&](auto y_zero) {
      const auto* x = c.in<decltype(x_zero)>(args.x);
      auto* y = c.out<decltype(y_zero)>(args.y);
      in_pieces(count, [&](int64_t first, int64_t size) { convert(x + first, y + first, size); });
    });
  });
}

void add_cpu(const OpContext& c, const Add& args) {
  with_float(c.dtype(args.a), [&](auto a_zero) {
    with_float(c.dtype(args.b), [&](auto b_zero) {
      with_float(c.dtype(args.y), [&](auto y_zero) {
        add(c.in<decltype(a_zero)>(args.a), c.in<decltype(b_zero)>(args.b), c.out<decltype(y_zero)>(args.y),
            c.shape(args.y).numel());
      });
    });
  });
}

void sum_parts_cpu(const OpContext& c, const SumParts& args) {
  const int64_t count = c.shape(args.y).numel(), parts = c.shape(args.others).numel() / count + 1;
  with_float(c.dtype(args.y), [&](auto zero) {
    using T = decltype(zero);
    const T *own = c.in<T>(args.own), *others = c.in<T>(args.others), *add = in_or_null<T>(c, args.add);
    T* y = c.out<T>(args.y);
    const auto part = [&](int64_t p) {
      return p == args.rank ? own : others + (p < args.rank ? p : p - 1) * count;
    };
    in_pieces(count, [&](int64_t first, int64_t size) {
      for (int64_t i = first; i < first + size; ++i) {
        auto sum = static_cast<float>(part(0)[i]);
        for (int64_t p = 1; p < parts; ++p) sum += static_cast<float>(part(p)[i]);
        y[i] = static_cast<T>(add ? sum + static_cast<float>(add[i]) : sum);
      }
    });
  });
}

}  // namespace moesaic::ops
