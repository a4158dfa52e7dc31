// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/jit/object_code.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Pass.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>
#include <llvm/Transforms/Scalar/ADCE.h>
#include <llvm/Transforms/Scalar/DeadStoreElimination.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/GVN.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>

#include <algorithm>
#include <cstdio>

namespace hekla::cpu {
namespace {

std::string names_of(const std::vector<NamedCode>& parts) {
  std::string text;
  for (const NamedCode& part : parts) {
    const auto* kernel = std::get_if<KernelCode>(&part.code);
    text += text.empty() ? "" : ", ";
    text += kernel != nullptr ? "kernel " + kernel->kernel.name : "a loop";
  }
  return text;
}

// For the message of a fatal error inside of LLVM.
thread_local const std::vector<NamedCode>* compiling = nullptr;

void on_fatal_error(void*, const char* reason, bool) {
  std::fprintf(stderr, "hekla: LLVM gave up: %s; it was compiling: %s\n", reason,
               compiling == nullptr ? "nothing" : names_of(*compiling).c_str());
}

void initialize_llvm() {
  static const bool done = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::install_fatal_error_handler(on_fatal_error);
    return true;
  }();
  static_cast<void>(done);
}

// Keeps what LLVM reports as an error; it would end the process otherwise.
struct Diagnostics : llvm::DiagnosticHandler {
  explicit Diagnostics(std::string& errors) : errors(errors) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() == llvm::DS_Error) {
      llvm::raw_string_ostream out(errors);
      llvm::DiagnosticPrinterRawOStream printer(out);
      info.print(printer);
    }
    return true;
  }
  std::string& errors;
};

// Leaves out passes whose time grows faster than the code does, and which gain nothing for long
// bodies without branches such as those of transforms: their addresses become smaller code without
// the reduction of induction variables, and the processor orders a window of instructions itself.
// A gate of LLVM's would skip them and still run the analyses that they ask for.
class LongBodyPasses : public llvm::legacy::PassManager {
 public:
  void add(llvm::Pass* pass) override {
    const llvm::StringRef name = pass->getPassName();
    if (name == "Loop Strength Reduction" || name == "Canonicalize Freeze Instructions in Loops" ||
        name == "Machine Instruction Scheduler" ||
        name == "Post RA top-down list latency scheduler") {
      delete pass;
      return;
    }
    llvm::legacy::PassManager::add(pass);
  }
};

// What kernels of a loop hand each other goes through registers, also from one iteration to the
// next, and what does not change is computed in front. None of these passes changes the bits of a
// result.
void run_loop_passes(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  const auto hoist = [] {
    return llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()),
                                                 /*UseMemorySSA=*/true);
  };
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  passes.addPass(hoist());
  passes.addPass(llvm::GVNPass());
  passes.addPass(hoist());
  passes.addPass(llvm::DSEPass());
  passes.addPass(llvm::SimplifyCFGPass());
  passes.addPass(llvm::ADCEPass());
  for (llvm::Function& function : module) {
    if (!function.isDeclaration()) passes.run(function, functions);
  }
}

}  // namespace

bool has_long_body(const kernel::Kernel& kernel) {
  constexpr size_t kLong = 128;  // instructions
  return kernel.body.region_count() == 1 && kernel.body.size() >= kLong;
}

std::string generator_version() { return "LLVM " LLVM_VERSION_STRING " " HEKLA_CPU_GENERATOR; }

ObjectWriter::ObjectWriter(Target target) : target_(std::move(target)) {}
ObjectWriter::~ObjectWriter() = default;

Result<std::unique_ptr<ObjectWriter>> ObjectWriter::create(Target target) {
  initialize_llvm();
  std::unique_ptr<ObjectWriter> writer(new ObjectWriter(std::move(target)));
  HEKLA_ASSIGN_OR_RETURN(auto machine, writer->take_machine());
  writer->give_back(std::move(machine));
  return writer;
}

Result<std::unique_ptr<llvm::TargetMachine>> ObjectWriter::take_machine() {
  {
    std::lock_guard lock(mutex_);
    if (!machines_.empty()) {
      auto machine = std::move(machines_.back());
      machines_.pop_back();
      return machine;
    }
  }
  std::string error;
  const llvm::Target* known = llvm::TargetRegistry::lookupTarget(target_.triple, error);
  if (known == nullptr) {
    return internal_error("LLVM cannot generate code for {}: {}", target_.triple, error);
  }
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  std::unique_ptr<llvm::TargetMachine> machine(known->createTargetMachine(
      target_.triple, target_.cpu, target_.features, options, llvm::Reloc::PIC_,
      llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default, /*JIT=*/true));
  if (machine == nullptr) {
    return internal_error("LLVM has no machine for {} {}", target_.triple, target_.cpu);
  }
  return machine;
}

void ObjectWriter::give_back(std::unique_ptr<llvm::TargetMachine> machine) {
  std::lock_guard lock(mutex_);
  machines_.push_back(std::move(machine));
}

Result<std::string> ObjectWriter::object_file(const std::vector<NamedCode>& parts) {
  return write(parts, Form::kObject);
}
Result<std::string> ObjectWriter::llvm_text(const std::vector<NamedCode>& parts) {
  return write(parts, Form::kLlvm);
}
Result<std::string> ObjectWriter::assembly_text(const std::vector<NamedCode>& parts) {
  return write(parts, Form::kAssembly);
}

Result<std::string> ObjectWriter::write(const std::vector<NamedCode>& parts, Form form) {
  std::string errors;
  llvm::LLVMContext context;
  context.setDiagnosticHandler(std::make_unique<Diagnostics>(errors));
  bool are_long = true, has_loops = false;
  for (const NamedCode& part : parts) {
    const auto* kernel = std::get_if<KernelCode>(&part.code);
    are_long = are_long && kernel != nullptr && has_long_body(kernel->kernel);
    has_loops = has_loops || kernel == nullptr;
  }
  HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<llvm::TargetMachine> machine, take_machine());
  llvm::Module module("kernels", context);
  module.setTargetTriple(target_.triple);
  module.setDataLayout(machine->createDataLayout());
  compiling = &parts;
  for (const NamedCode& part : parts) {
    if (const auto* kernel = std::get_if<KernelCode>(&part.code)) {
      emit_kernel(*kernel, part.symbol, module);
    } else {
      emit_loop(std::get<LoopCode>(part.code), part.symbol, module);
    }
  }
#ifdef HEKLA_CHECKS
  {
    std::string text;
    llvm::raw_string_ostream out(text);
    if (llvm::verifyModule(module, &out)) {
      compiling = nullptr;
      give_back(std::move(machine));
      return internal_error("{}: bad LLVM IR: {}", names_of(parts), text);
    }
  }
#endif
  if (has_loops) run_loop_passes(module, *machine);
  std::string result;
  if (form == Form::kLlvm) {
    llvm::raw_string_ostream out(result);
    module.print(out, nullptr);
  } else {
    llvm::SmallVector<char, 0> bytes;
    llvm::raw_svector_ostream out(bytes);
    std::unique_ptr<llvm::legacy::PassManager> passes;
    if (are_long) {
      passes = std::make_unique<LongBodyPasses>();
    } else {
      passes = std::make_unique<llvm::legacy::PassManager>();
    }
    const auto type = form == Form::kObject ? llvm::CodeGenFileType::ObjectFile
                                            : llvm::CodeGenFileType::AssemblyFile;
    if (machine->addPassesToEmitFile(*passes, out, nullptr, type)) {
      errors = "the target writes no such file";
    } else {
      passes->run(module);
    }
    result.assign(bytes.begin(), bytes.end());
  }
  compiling = nullptr;
  give_back(std::move(machine));
  if (!errors.empty()) return internal_error("{}: LLVM: {}", names_of(parts), errors);
  return result;
}

}  // namespace hekla::cpu
