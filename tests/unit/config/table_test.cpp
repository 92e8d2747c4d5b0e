#include <gtest/gtest.h>

#include <map>
#include <set>
#include <type_traits>

#include "config/enum_names.h"
#include "config/field_table.h"
#include "config/nearest.h"
#include "config/print.h"

namespace moesaic {
namespace {

// The number of members of a plain struct: the most initializers that it takes.
struct Anything {
  template <class T>
  operator T() const;
};
template <class T, class... Given>
constexpr size_t num_members() {
  if constexpr (requires { T{Given{}..., Anything{}}; }) {
    return num_members<T, Given..., Anything>();
  } else {
    return sizeof...(Given);
  }
}

TEST(FieldTable, HasEveryMemberOfEverySectionOnce) {
  Config config;
  std::set<std::string_view> keys;
  std::map<std::string_view, size_t> per_section;
  for (const Field& field : bind_fields(config)) {
    EXPECT_TRUE(keys.insert(field.key).second) << field.key;
    EXPECT_FALSE(field.help.empty()) << field.key;
    ++per_section[field.key.substr(0, field.key.rfind('.'))];
  }
  EXPECT_EQ(per_section["model"], num_members<ModelConfig>() - 2);  // the next two have sections of their own
  EXPECT_EQ(per_section["model.long_rope"], num_members<LongRopeConfig>());
  EXPECT_EQ(per_section["model.router"], num_members<RouterConfig>());
  EXPECT_EQ(per_section["balance"], num_members<BalanceConfig>());
  EXPECT_EQ(per_section["layout"], num_members<LayoutConfig>());
  EXPECT_EQ(per_section["optim"], num_members<OptimConfig>());
  EXPECT_EQ(per_section["train"], num_members<TrainConfig>());
  EXPECT_EQ(per_section["data"], num_members<DataConfig>());
  EXPECT_EQ(per_section["run"], num_members<RunConfig>());
}

TEST(FieldTable, BindsEachKeyToItsOwnMember) {
  Config config;
  std::set<const void*> places;
  for (const Field& field : bind_fields(config)) {
    std::visit(
        [&](const auto& value) {
          if constexpr (std::is_pointer_v<std::decay_t<decltype(value)>>) {
            EXPECT_TRUE(places.insert(value).second) << field.key;
          } else {
            EXPECT_TRUE(places.insert(value.object).second) << field.key;
          }
        },
        field.value);
  }
}

TEST(FieldTable, DefaultsAreInsideTheirRanges) {
  Config config;
  for (const Field& field : bind_fields(config)) EXPECT_EQ(range_problem(field), std::nullopt) << field.key;
}

TEST(EnumNames, LastValueHasTheLastName) {
  EXPECT_EQ(name_of(DeviceKind::sim), "sim");
  EXPECT_EQ(name_of(DeviceKind::null), "null");
  EXPECT_EQ(name_of(AttentionStrategy::tp), "tp");
  EXPECT_EQ(name_of(AttentionStrategy::batch), "batch");
  EXPECT_EQ(name_of(ExpertStrategy::tp), "tp");
  EXPECT_EQ(name_of(Dispatch::automatic), "auto");
  EXPECT_EQ(name_of(Dispatch::ag_rs), "ag_rs");
  EXPECT_EQ(name_of(Rebuild::full), "full");
  EXPECT_EQ(name_of(Rebuild::selective), "selective");
  EXPECT_EQ(name_of(OverflowPolicy::stop), "stop");
  EXPECT_EQ(name_of(OverflowPolicy::drop), "drop");
  EXPECT_EQ(name_of(ScoreFunction::sigmoid), "sigmoid");
  EXPECT_EQ(name_of(BalanceScope::global), "global");
  EXPECT_EQ(name_of(BalanceScope::micro_batch), "micro_batch");
  EXPECT_EQ(name_of(OptimizerKind::sgd), "sgd");
  EXPECT_EQ(name_of(DecaySchedule::wsd), "wsd");
  EXPECT_EQ(name_of(DecaySchedule::cosine), "cosine");
  EXPECT_EQ(name_of(ComputeType::bf16), "bf16");
  EXPECT_EQ(name_of(ReplayMode::inline_), "inline");
  EXPECT_EQ(name_of(ReplayMode::chaos), "chaos");
}

TEST(Help, ShowsKeyDefaultTypeAndRange) {
  const std::string help = config_help();
  EXPECT_NE(help.find("layout.dispatch = \"auto\": how tokens"), std::string::npos);
  EXPECT_NE(help.find("(one of auto, a2a, ag_rs)"), std::string::npos);
  EXPECT_NE(
      help.find("optim.beta1 = 0.9: adamw: decay of the first moment (a number, at least 0 and less than 1)"),
      std::string::npos);
  EXPECT_NE(help.find("model.preset:"), std::string::npos);
}

TEST(Nearest, TakesTheFewestEditsAndGivesUpOnStrangers) {
  const std::vector<std::string_view> known{"layout.dp", "layout.dispatch", "train.steps"};
  EXPECT_EQ(nearest("layout.dispach", known), "layout.dispatch");
  EXPECT_EQ(nearest("train.step", known), "train.steps");
  EXPECT_EQ(nearest("zzzzzzzzzz", known), "");
  EXPECT_EQ(nearest(std::string(1000, 'a'), known), "");
  EXPECT_EQ(nearest("x", {}), "");
}

TEST(Nearest, ExcerptIsShortAndPrintable) {
  EXPECT_EQ(excerpt("a\nb\x1b[31m\x7f"), "a?b?[31m?");
  EXPECT_EQ(excerpt(std::string(100, 'x')), std::string(64, 'x') + "...");
}

}  // namespace
}  // namespace moesaic
