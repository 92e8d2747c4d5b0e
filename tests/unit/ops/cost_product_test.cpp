// Costs of products: those of plain loops, whatever else the op does. And that no op is left out of these tests.
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "ops/attention/attention.h"
#include "ops/grouped_matmul/grouped_matmul.h"
#include "ops/head_loss/head_loss.h"
#include "ops/matmul/matmul.h"
#include "support/cost_check.h"

namespace moesaic::test {
namespace {

constexpr Stream kStream = Stream::compute;
constexpr DType kTypes[] = {DType::f32, DType::bf16};

/// Operations of a product of [m, k] by [k, n].
double product(int64_t m, int64_t n, int64_t k) {
  const int64_t before = Counted::operations();
  const Numbers a(static_cast<size_t>(k), 1);
  for (int64_t i = 0; i < m * n; ++i) {
    Counted sum;
    for (const Counted x : a) sum += x * x;
  }
  return static_cast<double>(Counted::operations() - before);
}

/// The one op recorded.
void expect_product(CostCheck& c, double operations) {
  c.expect_bytes();
  EXPECT_EQ(c.program().nodes()[0].cost.operations, operations) << c.program().nodes()[0].name;
}

TEST(Cost, OfMatmul) {
  for (const DType type : kTypes)
    for (const bool accumulate : {false, true}) {
      CostCheck c(type);
      const Handle a = c.random({5, 6}), b = c.random_f32({5, 3}), y = c.random({6, 3});
      ops::matmul(c.program(), kStream, {.a = a, .b = b, .c = y, .trans_a = true, .accumulate = accumulate});
      expect_product(c, product(6, 3, 5));
    }
}

/// Every row that is declared is expected.
TEST(Cost, OfGroupedMatmul) {
  constexpr int64_t N = 5, K = 7, kRows = 6;
  const double operations = product(4, N, K) + product(2, N, K);
  for (const DType type : kTypes) {
    CostCheck c(type);
    const Handle offsets = c.ints("offsets", {3}, {0, 4, kRows}), rows = c.count_up({kRows}, kRows);
    ops::grouped_matmul(c.program(), kStream,
                        {.x = c.random({kRows, K}),
                         .x_rows = rows,
                         .w = c.random({2, N, K}),
                         .offsets = offsets,
                         .y = c.blank({kRows, N}),
                         .expected_rows = kRows});
    expect_product(c, operations);
    for (const bool accumulate : {false, true}) {
      CostCheck grad(type);
      ops::grouped_matmul_weight_grad(grad.program(), kStream,
                                      {.dy = grad.random({kRows, N}),
                                       .dy_rows = grad.count_up({kRows}, kRows),
                                       .x = grad.random({kRows, K}),
                                       .x_rows = grad.count_up({kRows}, kRows),
                                       .offsets = grad.ints("offsets", {3}, {0, 4, kRows}),
                                       .dw = grad.random_f32({2, N, K}),
                                       .accumulate = accumulate,
                                       .expected_rows = kRows});
      expect_product(grad, operations);
    }
  }
}

TEST(Cost, OfHeadLoss) {
  constexpr int64_t T = 6, D = 5, V = 9;
  for (const DType type : kTypes)
    for (const bool with_gradients : {false, true})
      for (const bool accumulate : {false, true}) {
        CostCheck c(type);
        ops::HeadLoss args{.x = c.random({T, D}), .w = c.random({V, D}), .targets = c.count_up({T}, V)};
        args.logits = c.blank_f32({2, V}), args.accumulate = accumulate;
        args.loss = c.random_f32({1}), args.counted = c.ints("counted", {1}, {0});
        args.token_loss = c.blank_f32({T}), args.bias = c.random({V});
        if (with_gradients) {
          args.scale = c.random_f32({1}), args.dx = c.blank({T, D});
          args.dw = c.random_f32({V, D}), args.d_bias = c.random_f32({V});
        }
        ops::head_loss(c.program(), kStream, args);
        c.moves_only(args.logits, 0, "working memory");
        expect_product(c, product(T, V, D) + (with_gradients ? product(T, D, V) + product(V, D, T) : 0));
      }
}

TEST(Cost, OfAttention) {
  constexpr int64_t B = 2, S = 12, H = 4, G = 2, A = 8;
  for (const DType type : kTypes) {
    CostCheck f(type), b(type);
    const Shape qkv{B, S, (H + 2 * G) * A}, o{B, S, H * A};
    ops::attention_forward(f.program(), kStream,
                           {.qkv = f.random(qkv),
                            .doc_start = f.count_up({B, S}, 1),
                            .o = f.blank(o),
                            .lse = f.blank_f32({B, H, S}),
                            .num_heads = H,
                            .num_kv_heads = G,
                            .head_dim = A});
    const double scores = B * H * product(S, S, A) / 2, sums = B * H * product(S, A, S) / 2;  // causal
    expect_product(f, scores + sums);
    ops::attention_backward(b.program(), kStream,
                            {.d_o = b.random(o),
                             .qkv = b.random(qkv),
                             .o = b.random(o),
                             .lse = b.random_f32({B, H, S}),
                             .doc_start = b.count_up({B, S}, 1),
                             .d_qkv = b.blank(qkv),
                             .num_heads = H,
                             .num_kv_heads = G,
                             .head_dim = A});
    expect_product(b, 2 * scores + 3 * sums);  // q k and d_o v; then d_q, d_k, d_v
  }
}

std::string text_of(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Cost, OfEveryOpIsTestedHere) {
  const std::filesystem::path root = MOESAIC_SOURCE_DIR;
  std::string tests;
  for (const auto& file : std::filesystem::directory_iterator(root / "tests/unit/ops"))
    if (file.path().filename().string().starts_with("cost_")) tests += text_of(file);
  int ops = 0;
  const std::regex name(R"re(\.name = "(\w+)")re");
  for (const auto& file : std::filesystem::recursive_directory_iterator(root / "src/ops")) {
    if (file.path().extension() != ".cpp") continue;
    const std::string text = text_of(file);
    for (std::sregex_iterator op(text.begin(), text.end(), name), end; op != end; ++op, ++ops)
      EXPECT_NE(tests.find("ops::" + (*op)[1].str() + "("), std::string::npos) << (*op)[1];
  }
  EXPECT_GE(ops, 38);
}

}  // namespace
}  // namespace moesaic::test
