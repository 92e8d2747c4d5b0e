#include <gtest/gtest.h>

#include <cmath>

#include "base/check.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/shape.h"
#include "base/units.h"

namespace moesaic {
namespace {

TEST(Dtype, Bf16RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(float(bf16(1.0f)), 1.0f);
  EXPECT_EQ(float(bf16(1.0f + 0x1p-8f)), 1.0f);               // a tie goes to the even neighbour
  EXPECT_EQ(float(bf16(1.0f + 0x3p-8f)), 1.0f + 0x1p-6f);     // and so does the next tie
  EXPECT_EQ(float(bf16(1.0f + 0x1.02p-8f)), 1.0f + 0x1p-7f);  // above the tie
  EXPECT_TRUE(std::isnan(float(bf16(std::nanf("1")))));
  EXPECT_TRUE(std::isinf(float(bf16(3.4e38f))));
}

TEST(Rng, PhiloxMatchesThePublishedVector) {
  // Random123's known answer for philox4x32-10 with counter 0 and key 0: 6627e8d5 e169c58d ...
  EXPECT_EQ(random_bits(0, 0, 0), 0xe169c58d6627e8d5ull);
}

TEST(Rng, NormalHasMeanZeroAndVarianceOne) {
  double sum = 0, squares = 0;
  const int count = 100000;
  for (int i = 0; i < count; ++i) {
    const double x = random_normal(7, 1, static_cast<uint64_t>(i));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / count, 0, 0.015);
  EXPECT_NEAR(squares / count, 1, 0.02);
}

TEST(Shape, CountsAndPrints) {
  const Shape s{2, 3, 4};
  EXPECT_EQ(s.numel(), 24);
  EXPECT_EQ(s.rows(), 6);
  EXPECT_EQ(s[-1], 4);
  EXPECT_EQ(s.str(), "[2, 3, 4]");
}

TEST(Errors, AreTypedAndFormatted) {
  try {
    fail<ConfigError>("n = {} does not divide S = {}", 3, 8);
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "n = 3 does not divide S = 8");
  }
  EXPECT_THROW(require<IoError>(false, "no"), IoError);
  EXPECT_NO_THROW(require<IoError>(true, "no"));
}

TEST(CheckDeathTest, NamesPlaceAndValues) {
  EXPECT_DEATH(div_exact(7, 2), "7 / 2");
}

TEST(Units, ReadLikeAPersonWouldWrite) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_count(46.7e9), "46.70 B");
  EXPECT_EQ(format_flops(282.51e9), "282.51 GFLOP");
  EXPECT_EQ(format_flops(950), "950 FLOP");
  EXPECT_EQ(format_seconds(125), "2 min 05 s");
}

}  // namespace
}  // namespace moesaic
