#pragma once
// A number that counts what is done with it: a formula written once over Counted gives both its values and its operations.
#include <cmath>
#include <cstdint>
#include <vector>

namespace moesaic::test {

class Counted {
 public:
  Counted(double value = 0)
      : value_(value) {}  // NOLINT(google-explicit-constructor): constants stand in formulas
  double value() const { return value_; }
  /// Since the program began, of all numbers.
  static int64_t operations() { return operations_; }

  Counted operator-() const { return done(-value_); }
  friend Counted operator+(Counted a, Counted b) { return done(a.value_ + b.value_); }
  friend Counted operator-(Counted a, Counted b) { return done(a.value_ - b.value_); }
  friend Counted operator*(Counted a, Counted b) { return done(a.value_ * b.value_); }
  friend Counted operator/(Counted a, Counted b) { return done(a.value_ / b.value_); }
  Counted& operator+=(Counted b) { return *this = *this + b; }
  Counted& operator-=(Counted b) { return *this = *this - b; }
  Counted& operator*=(Counted b) { return *this = *this * b; }
  Counted& operator/=(Counted b) { return *this = *this / b; }
  friend bool operator>(Counted a, Counted b) { return done(a.value_ > b.value_).value_ != 0; }
  friend bool operator<(Counted a, Counted b) { return b > a; }
  friend bool operator==(Counted a, Counted b) { return done(a.value_ == b.value_).value_ != 0; }

  friend Counted exp(Counted a) { return done(std::exp(a.value_)); }
  friend Counted log(Counted a) { return done(std::log(a.value_)); }
  friend Counted cos(Counted a) { return done(std::cos(a.value_)); }
  friend Counted sqrt(Counted a) { return done(std::sqrt(a.value_)); }
  friend Counted abs(Counted a) { return done(std::fabs(a.value_)); }
  friend Counted sign(Counted a) { return done(a.value_ > 0 ? 1 : a.value_ < 0 ? -1 : 0); }
  friend Counted max(Counted a, Counted b) { return done(std::fmax(a.value_, b.value_)); }
  friend Counted min(Counted a, Counted b) { return done(std::fmin(a.value_, b.value_)); }

 private:
  static Counted done(double value) {
    ++operations_;
    return value;
  }
  double value_;
  static inline int64_t operations_ = 0;
};

using Numbers = std::vector<Counted>;

}  // namespace moesaic::test
