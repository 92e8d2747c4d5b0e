#include "config/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "config/field_table.h"
#include "config/print.h"
#include "config/shapes.h"
#include "support/temp_folder.h"
#include "support/thrown.h"

namespace moesaic {
namespace {

using ::testing::HasSubstr;

Config parse(std::string_view text) {
  return parse_config_text(text, "file.toml");
}
std::string refusal(std::string_view text) {
  return message_of([&] { parse(text); });
}
std::string refused_setting(std::string_view setting) {
  Config config;
  return message_of([&] { apply_setting(config, setting); });
}

TEST(Parse, ReadsEveryKindOfValue) {
  const Config config = parse(R"(
[layout]
dispatch = "ag_rs"
n = 4
rows_factor = 3
[model.router]
renormalize = false
[optim]
lr = 1e-4
[train]
trace_steps = [3, 7]
seed = 99
[data]
train = "a/b.c"
[run]
replay = "inline"
)");
  EXPECT_EQ(config.layout.dispatch, Dispatch::ag_rs);
  EXPECT_EQ(config.layout.n, 4);
  EXPECT_EQ(config.layout.rows_factor, 3.0);
  EXPECT_FALSE(config.model.router.renormalize);
  EXPECT_EQ(config.optim.lr, 1e-4);
  EXPECT_EQ(config.train.trace_steps, (std::vector<int64_t>{3, 7}));
  EXPECT_EQ(config.train.seed, 99u);
  EXPECT_EQ(config.data.train, "a/b.c");
  EXPECT_EQ(config.run.replay, ReplayMode::inline_);
  EXPECT_EQ(config.layout.dp, Config{}.layout.dp);
}

TEST(Parse, EmptyTextGivesTheDefaults) {
  EXPECT_EQ(print_config(parse("")), print_config(Config{}));
}

TEST(Parse, UnknownKeyNamesPlaceAndNearestKey) {
  EXPECT_EQ(refusal("[layout]\n\ndispach = \"a2a\"\n"),
            "unknown key layout.dispach in file.toml:3; did you mean layout.dispatch?");
  EXPECT_EQ(refusal("[layot]\nn = 2\n"), "unknown key layot in file.toml:1; did you mean layout?");
  EXPECT_EQ(refusal("[train]\nlr = 1.0\n"), "unknown key train.lr in file.toml:2; did you mean optim.lr?");
  EXPECT_EQ(refusal("[model.router]\nnum_group = 2\n"),
            "unknown key model.router.num_group in file.toml:2; did you mean model.router.num_groups?");
  EXPECT_EQ(refusal("zzzzzzzzzzzzzzzzzzzzz = 1\n"), "unknown key zzzzzzzzzzzzzzzzzzzzz in file.toml:1");
}

TEST(Parse, WrongTypeIsRefusedWithPlaceAndBothTypes) {
  EXPECT_EQ(refusal("layout.n = \"two\"\n"), "layout.n in file.toml:1: expected an integer, found \"two\"");
  EXPECT_EQ(refusal("layout.n = 2.0\n"), "layout.n in file.toml:1: expected an integer, found a float");
  EXPECT_EQ(refusal("optim.lr = true\n"), "optim.lr in file.toml:1: expected a number, found true or false");
  EXPECT_EQ(refusal("model.qk_norm = 1\n"), "model.qk_norm in file.toml:1: expected true or false, found 1");
  EXPECT_EQ(refusal("data.train = [1]\n"), "data.train in file.toml:1: expected a string, found an array");
  EXPECT_EQ(refusal("train.trace_steps = [1, \"a\"]\n"),
            "train.trace_steps in file.toml:1: expected an array of integers, found an array");
  EXPECT_EQ(refusal("layout = 3\n"), "layout in file.toml:1: expected a table, found 3");
  EXPECT_EQ(refusal("[layout.n]\n"), "layout.n in file.toml:1: expected an integer, found a table");
  EXPECT_EQ(refusal("layout.dispatch = \"atoa\"\n"),
            "layout.dispatch in file.toml:1: expected one of auto, a2a, ag_rs, found \"atoa\"");
}

TEST(Parse, NumberOutsideItsRangeIsRefused) {
  EXPECT_EQ(refusal("[train]\nsteps = 0\n"),
            "train.steps in file.toml:2 must be at least 1 and at most 1000000000000, but is 0");
  EXPECT_EQ(refusal("optim.lr = -1.0\n"), "optim.lr in file.toml:1 must be at least 0, but is -1");
  EXPECT_EQ(refusal("optim.beta2 = 1\n"),
            "optim.beta2 in file.toml:1 must be at least 0 and less than 1, but is 1");
  EXPECT_THAT(refusal("optim.eps = 0\n"), HasSubstr("must be more than 0, but is 0"));
  EXPECT_THAT(refusal("optim.lr = nan\n"), HasSubstr("must be finite"));
  EXPECT_THAT(refusal("optim.lr = inf\n"), HasSubstr("must be finite"));
  EXPECT_THAT(refusal("train.seed = -1\n"), HasSubstr("expected an integer of at least 0, found -1"));
  EXPECT_THAT(refusal("train.trace_steps = [1, -2]\n"), HasSubstr("each element must be at least 0"));
  EXPECT_THAT(refusal("train.steps = 9223372036854775808\n"), HasSubstr("file.toml:1:"));
}

TEST(Parse, SyntaxErrorsCarryTheLine) {
  EXPECT_THAT(refusal("[layout]\nn = \n"), HasSubstr("file.toml:2:"));
  EXPECT_THAT(refusal("[train]\nsteps = 1\nsteps = 2\n"), HasSubstr("file.toml:3:"));
  EXPECT_THAT(refusal("data.train = \"\xff\xfe\"\n"), HasSubstr("file.toml:1:"));
}

TEST(Parse, QuotedDotsDoNotReachAFieldByAnotherName) {
  EXPECT_THAT(refusal("\"layout.n\" = 2\n"), HasSubstr("leave the quotes out"));
  EXPECT_THAT(refusal("\"model.preset\" = \"tiny\"\n"), HasSubstr("leave the quotes out"));
}

TEST(Parse, HostileNestingIsRefusedBeforeTheParserRecurses) {
  std::string key;
  for (int i = 0; i < 500000; ++i) key += "a.";
  EXPECT_THAT(refusal(key + "a = 1\n"), HasSubstr("file.toml:1: expected at most 32 dots"));
  EXPECT_THAT(refusal("\n[" + key + "a]\n"), HasSubstr("file.toml:2: expected at most 32 dots"));
  EXPECT_THAT(refused_setting("train.trace_steps={" + key + "a=1}"), HasSubstr("expected at most 32 dots"));
  EXPECT_THAT(refusal("x = " + std::string(100000, '[')), HasSubstr("file.toml:1:"));
  EXPECT_NO_THROW(parse("  # " + std::string(200, '.') + "\n"));
}

TEST(Parse, SizeIsBounded) {
  const std::string at_bound = "#" + std::string(kMaxConfigBytes - 1, 'x');
  EXPECT_NO_THROW(parse(at_bound));
  EXPECT_THAT(refusal(at_bound + "x"), HasSubstr("expected at most 1048576 bytes, found 1048577"));
}

TEST(ParseFile, ReadsAndRefusesFiles) {
  TempFolder folder;
  spit(folder / "good.toml", "layout.dp = 3\n");
  EXPECT_EQ(parse_config_file(folder / "good.toml").layout.dp, 3);
  spit(folder / "empty.toml", "");
  EXPECT_EQ(parse_config_file(folder / "empty.toml").layout.dp, 1);
  spit(folder / "bad.toml", "\nlayout.dq = 3\n");
  EXPECT_THAT(message_of([&] { parse_config_file(folder / "bad.toml"); }),
              HasSubstr("/bad.toml:2; did you mean"));
  spit(folder / "large.toml", std::string(kMaxConfigBytes + 1, '#'));
  EXPECT_THAT(message_of<IoError>([&] { parse_config_file(folder / "large.toml"); }),
              HasSubstr("larger file"));
  EXPECT_THAT(message_of<IoError>([&] { parse_config_file("/dev/zero"); }), HasSubstr("larger file"));
  EXPECT_THAT(message_of<IoError>([&] { parse_config_file(folder / "none.toml"); }),
              HasSubstr("cannot be opened"));
  EXPECT_THAT(message_of<IoError>([&] { parse_config_file(folder.path()); }), HasSubstr("is it a file?"));
}

TEST(Preset, LoadsFirstWhereverItStands) {
  for (const char* text : {"model.num_layers = 4\nmodel.preset = \"mixtral-8x7b\"\n",
                           "model.preset = \"mixtral-8x7b\"\nmodel.num_layers = 4\n",
                           "[model]\nnum_layers = 4\npreset = \"mixtral-8x7b\"\n"}) {
    const Config config = parse(text);
    EXPECT_EQ(config.model.num_layers, 4);
    EXPECT_EQ(config.model.hidden, 4096);
    EXPECT_EQ(config.model.name, "mixtral-8x7b");
  }
}

TEST(Preset, UnknownOneNamesTheNearest) {
  EXPECT_THAT(
      refusal("\nmodel.preset = \"mixtral-8x7\"\n"),
      HasSubstr(
          "model.preset in file.toml:2: unknown model shape \"mixtral-8x7\". Did you mean mixtral-8x7b?"));
  EXPECT_THAT(refusal("model.preset = 3\n"), HasSubstr("expected a string, found 3"));
}

TEST(Setting, SetsEveryKindOfValue) {
  Config config;
  for (const char* setting :
       {"layout.n=4", " optim.lr = 1e-4", "layout.dispatch=a2a", "model.qk_norm=true", "data.train=a=b \"c\"",
        "train.trace_steps=[3, 4]", "run.resume=", "train.seed=5"}) {
    apply_setting(config, setting);
  }
  EXPECT_EQ(config.layout.n, 4);
  EXPECT_EQ(config.optim.lr, 1e-4);
  EXPECT_EQ(config.layout.dispatch, Dispatch::a2a);
  EXPECT_TRUE(config.model.qk_norm);
  EXPECT_EQ(config.data.train, "a=b \"c\"");
  EXPECT_EQ(config.train.trace_steps, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(config.run.resume, "");
  EXPECT_EQ(config.train.seed, 5u);
}

TEST(Setting, RefusesWhatAFileWouldRefuse) {
  EXPECT_EQ(refused_setting("layout.n"), "--set expects key=value, found \"layout.n\"");
  EXPECT_EQ(refused_setting("layout.m=2"),
            "unknown key layout.m in --set layout.m=2; did you mean layout.n?");
  EXPECT_THAT(refused_setting("layout.n=two"), HasSubstr("--set layout.n=two"));
  EXPECT_THAT(refused_setting("layout.n="), HasSubstr("the value is not a TOML value"));
  EXPECT_THAT(refused_setting("layout.n=2\nx = 3"), HasSubstr("the value is not a TOML value"));
  EXPECT_THAT(refused_setting("layout.n=0"), HasSubstr("must be at least 1"));
  EXPECT_THAT(refused_setting("layout.dispatch=x"),
              HasSubstr("expected one of auto, a2a, ag_rs, found \"x\""));
  EXPECT_THAT(refused_setting("data.train=\xff"), HasSubstr("not UTF-8"));
  EXPECT_THAT(refused_setting("model.preset=nope"), HasSubstr("unknown model shape"));
  EXPECT_THAT(refused_setting("=3"), HasSubstr("unknown key"));
}

TEST(Setting, RefusedOneLeavesTheConfigAlone) {
  Config config;
  EXPECT_THROW(apply_setting(config, "layout.n=-7"), ConfigError);
  EXPECT_EQ(config.layout.n, 1);
}

TEST(Settings, PresetComesFirstAndReplacesTheFilesModel) {
  Config config = parse("model.num_layers = 7\nmodel.vocab = 300\n");
  apply_settings(config, {"model.num_layers=4", "layout.n=2", "model.preset=mixtral-8x7b", "layout.n=8"});
  EXPECT_EQ(config.model.num_layers, 4);
  EXPECT_EQ(config.model.vocab, 32000);
  EXPECT_EQ(config.layout.n, 8);
}

// Random values inside every field's range, printed and read back.
void randomize(Config& config, uint64_t seed) {
  uint64_t index = 0;
  const auto below = [&](uint64_t bound) { return random_below(bound, seed, 1, index++); };
  for (const Field& field : bind_fields(config)) {
    const auto whole = [&] {
      const double low = std::isfinite(field.range.min) ? field.range.min : -1e15;
      const double high = std::isfinite(field.range.max) ? field.range.max : 1e15;
      return static_cast<int64_t>(low) + static_cast<int64_t>(below(static_cast<uint64_t>(high - low) + 1));
    };
    if (auto* const* flag = std::get_if<bool*>(&field.value)) **flag = below(2) == 1;
    if (auto* const* number = std::get_if<int64_t*>(&field.value)) **number = whole();
    if (auto* const* number = std::get_if<uint64_t*>(&field.value)) **number = below(uint64_t{1} << 63);
    if (auto* const* number = std::get_if<double*>(&field.value)) {
      const double unit = static_cast<double>(below(uint64_t{1} << 53) + 1) / 0x1p54;  // in (0, 0.5]
      const double scale =
          std::isfinite(field.range.max) ? 1 : std::pow(10.0, static_cast<double>(below(60)) - 30);
      **number = std::max(field.range.min, 0.0) + unit * scale;
    }
    if (auto* const* text = std::get_if<std::string*>(&field.value)) {
      (*text)->clear();
      const std::array<const char*, 8> pieces{"a", "\"", "\\", "\n", "\t", "\x7f", "\xc3\xa9", " "};
      for (uint64_t i = below(10); i > 0; --i) **text += pieces[below(pieces.size())];
    }
    if (auto* const* list = std::get_if<std::vector<int64_t>*>(&field.value)) {
      for (uint64_t i = below(5); i > 0; --i) (*list)->push_back(whole());
    }
    if (auto const* choice = std::get_if<EnumRef>(&field.value)) {
      choice->set(choice->object, below(choice->names.size()));
    }
  }
}

TEST(Print, ParsesBackToTheSameConfig) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Config config;
    randomize(config, seed);
    Config back = parse(print_config(config));
    const std::vector<Field> expected = bind_fields(config);
    const std::vector<Field> found = bind_fields(back);
    for (size_t i = 0; i < expected.size(); ++i) {
      std::visit(
          [&](const auto& value) {
            using Value = std::decay_t<decltype(value)>;
            const auto& other = std::get<Value>(found[i].value);
            if constexpr (std::is_pointer_v<Value>) {
              EXPECT_EQ(*value, *other) << expected[i].key;
            } else {
              EXPECT_EQ(value.get(value.object), other.get(other.object)) << expected[i].key;
            }
          },
          expected[i].value);
    }
  }
}

TEST(Print, StatesEverySectionAndKeepsFloatsFloats) {
  const std::string text = print_config(Config{});
  for (const char* part :
       {"[model]\n", "\n[model.router]\nscore = \"softmax\"\n", "rope_theta = 10000.0\n", "eps = 1e-08\n",
        "dispatch = \"auto\"\n", "trace_steps = []\n", "replay = \"inline\"\n"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(ShippedConfigs, AllParse) {
  int64_t count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(MOESAIC_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".toml") continue;
    EXPECT_NO_THROW(parse_config_file(entry.path())) << entry.path();
    ++count;
  }
  EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace moesaic
