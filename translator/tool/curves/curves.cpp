#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "curves/svg_chart.hpp"
#include "curves/training_run.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "terminal/output_checks.hpp"

namespace translator {

namespace {

struct CurvesCommand {
  std::vector<std::string> folders;
  std::string output;
  std::string x = "steps";
};

/// The validations of all runs by one measure; curves with few points have dots.
void add_validations(Panel& panel, const std::vector<TrainingRun>& runs, const std::string& measure,
                     const std::string& style) {
  for (std::size_t k = 0; k < runs.size(); ++k) {
    const auto found = runs[k].validations.find(measure);
    if (found == runs[k].validations.end()) continue;
    panel.curves.push_back({found->second, k, style, found->second.size() <= 60});
  }
}

std::vector<Panel> panels_of(const std::vector<TrainingRun>& runs) {
  constexpr std::size_t most_points = 400;
  Panel loss{"loss, nats per token: training thin, validation bold", 250, false, {}};
  Panel rate{"learning rate", 90, true, {}};
  bool has_bleu = false, has_chrf = false, has_loss = false;
  for (std::size_t k = 0; k < runs.size(); ++k) {
    if (!runs[k].loss.empty()) loss.curves.push_back({thinned(runs[k].loss, most_points), k, "thin", false});
    if (!runs[k].learning_rate.empty())
      rate.curves.push_back({thinned(runs[k].learning_rate, most_points), k, "", false});
    has_bleu = has_bleu || runs[k].validations.contains("bleu");
    has_chrf = has_chrf || runs[k].validations.contains("chrf");
    has_loss = has_loss || runs[k].validations.contains("loss");
  }
  if (!has_loss) loss.title = "training loss, nats per token";
  add_validations(loss, runs, "loss", "");
  Panel translation{has_bleu && has_chrf ? "validation: BLEU solid, chrF dashed"
                    : has_bleu           ? "validation: BLEU"
                                         : "validation: chrF",
                    170,
                    true,
                    {}};
  add_validations(translation, runs, "bleu", "");
  add_validations(translation, runs, "chrf", has_bleu ? "dashed" : "");
  std::vector<Panel> panels;
  for (Panel* panel : {&loss, &translation, &rate}) {
    if (!panel->curves.empty()) panels.push_back(std::move(*panel));
  }
  return panels;
}

int curves(const CurvesCommand& command) {
  const std::map<std::string, std::pair<CurveAxis, const char*>> axes = {
      {"steps", {CurveAxis::steps, "updates"}},
      {"minutes", {CurveAxis::minutes, "minutes"}},
      {"tokens", {CurveAxis::tokens, "target tokens"}}};
  const auto axis = axes.find(command.x);
  if (axis == axes.end()) {
    throw ef::ValueError("curves", {"x is '", command.x, "', expected steps, minutes or tokens"});
  }
  check_writable_file(command.output);
  std::vector<TrainingRun> runs;
  std::vector<std::string> names;
  for (const std::string& folder : command.folders) {
    runs.push_back(read_training_run(folder, axis->second.first));
    names.push_back(runs.back().name);
  }
  ef::detail::write_file(command.output, SvgChart(names, axis->second.second).draw(panels_of(runs)));
  std::fprintf(stderr, "wrote curves of %s to '%s'\n", counted(runs.size(), "training").c_str(),
               command.output.c_str());
  return 0;
}

}  // namespace

void add_curves(CLI::App& app, Run& run) {
  const auto [sub, command] = add_command(
      app, run, "curves", "Draws losses, BLEU, chrF and learning rates of trainings as SVG", curves);
  sub->add_option("folders", command->folders, "model folders, or logs (training.jsonl)")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->required();
  sub->add_option("--output", command->output, "SVG file to write")->required();
  sub->add_option("--x", command->x, "quantity on the x axis: steps, minutes or tokens")
      ->capture_default_str();
  sub->footer(
      "Each training has a colour; from the seventh on, colours repeat with dashed lines. See "
      "docs/training/running.md and docs/training/log.md.");
}

}  // namespace translator
