// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/jit/linker.h"

#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/Orc/Core.h>
#include <llvm/ExecutionEngine/Orc/ExecutorProcessControl.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/ExecutionEngine/Orc/TaskDispatch.h>
#include <llvm/Support/MemoryBuffer.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>

#include "runtime/base/copy_bytes.h"

namespace hekla::cpu {
namespace {

namespace orc = llvm::orc;

std::string text_of(llvm::Error error) { return llvm::toString(std::move(error)); }

// Glibc has it; C++ learns of it in C23.
extern "C" float roundevenf(float) noexcept;
extern "C" double roundeven(double) noexcept;

void* copy_for_code(void* to, const void* from, size_t bytes) {
  copy_bytes(to, from, static_cast<int64_t>(bytes));
  return to;
}

void* move_for_code(void* to, const void* from, size_t bytes) {
  move_bytes(to, from, static_cast<int64_t>(bytes));
  return to;
}

template <typename Function>
orc::ExecutorSymbolDef helper(Function* function) {
  return {orc::ExecutorAddr::fromPtr(function),
          llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
}

class OrcLinker;

class OrcModule : public CodeModule {
 public:
  OrcModule(std::shared_ptr<OrcLinker> linker, orc::JITDylib& library)
      : linker_(std::move(linker)), library_(library) {}
  ~OrcModule() override;
  orc::JITDylib& library() { return library_; }

 private:
  std::shared_ptr<OrcLinker> linker_;  // shared with the other modules; owns the session
  orc::JITDylib& library_;             // of the session
};

class OrcLinker : public Linker, public std::enable_shared_from_this<OrcLinker> {
 public:
  OrcLinker(std::unique_ptr<orc::ExecutorProcessControl> control,
            std::unique_ptr<llvm::jitlink::JITLinkMemoryManager> memory)
      : session_(std::move(control)),
        layer_(session_, std::move(memory)),
        helpers_(session_.createBareJITDylib("helpers")) {
    // Errors come back from the look-up; LLVM prints them as well by default.
    session_.setErrorReporter([this](llvm::Error error) {
      std::lock_guard lock(mutex_);
      last_error_ += text_of(std::move(error)) + " ";
    });
  }

  ~OrcLinker() override { llvm::consumeError(session_.endSession()); }

  Status define_helpers() {
    using F = float (*)(float);
    using D = double (*)(double);
    orc::SymbolMap map;
    auto add = [&](const char* name, orc::ExecutorSymbolDef definition) {
      map[session_.intern(name)] = definition;
    };
    add("memcpy", helper(copy_for_code));
    add("memmove", helper(move_for_code));
    add("memset", helper(std::memset));
    add("floorf", helper(static_cast<F>(::floorf)));
    add("floor", helper(static_cast<D>(::floor)));
    add("ceilf", helper(static_cast<F>(::ceilf)));
    add("ceil", helper(static_cast<D>(::ceil)));
    add("truncf", helper(static_cast<F>(::truncf)));
    add("trunc", helper(static_cast<D>(::trunc)));
    add("roundevenf", helper(static_cast<F>(roundevenf)));
    add("roundeven", helper(static_cast<D>(roundeven)));
    if (auto error = helpers_.define(orc::absoluteSymbols(std::move(map)))) {
      return internal_error("helpers of generated code: {}", text_of(std::move(error)));
    }
    return ok_status();
  }

  Result<std::shared_ptr<CodeModule>> link(const std::string& object,
                                           std::span<const std::string> symbols) override {
    orc::JITDylib& library = session_.createBareJITDylib(fmt::format("code{}", next_++));
    auto module = std::make_shared<OrcModule>(shared_from_this(), library);
    library.addToLinkOrder(helpers_);
    auto buffer = llvm::MemoryBuffer::getMemBufferCopy(object, library.getName());
    if (auto error = layer_.add(library, std::move(buffer))) {
      return internal_error("object code cannot be read: {}", text_of(std::move(error)));
    }
    orc::SymbolLookupSet wanted;
    for (const std::string& symbol : symbols) wanted.add(session_.intern(symbol));
    auto found = session_.lookup(orc::makeJITDylibSearchOrder(&library), std::move(wanted));
    if (!found) {
      std::lock_guard lock(mutex_);
      return internal_error("object code cannot be linked: {} {}", text_of(found.takeError()),
                            std::exchange(last_error_, {}));
    }
    for (const std::string& symbol : symbols) {
      module->addresses.push_back((*found)[session_.intern(symbol)].getAddress().toPtr<void*>());
    }
    return std::shared_ptr<CodeModule>(std::move(module));
  }

  void remove(orc::JITDylib& library) { llvm::consumeError(session_.removeJITDylib(library)); }

 private:
  orc::ExecutionSession session_;
  orc::ObjectLinkingLayer layer_;
  orc::JITDylib& helpers_;  // of the session
  std::atomic<int64_t> next_ = 0;
  std::mutex mutex_;
  std::string last_error_;  // guarded by mutex_
};

OrcModule::~OrcModule() { linker_->remove(library_); }

}  // namespace

Result<std::shared_ptr<Linker>> Linker::create() {
  auto control = orc::SelfExecutorProcessControl::Create(
      nullptr, std::make_unique<orc::InPlaceTaskDispatcher>());
  if (!control) return internal_error("ORC: {}", text_of(control.takeError()));
  auto memory = llvm::jitlink::InProcessMemoryManager::Create();
  if (!memory) return internal_error("memory of generated code: {}", text_of(memory.takeError()));
  auto linker = std::make_shared<OrcLinker>(std::move(*control), std::move(*memory));
  HEKLA_RETURN_IF_ERROR(linker->define_helpers());
  return std::shared_ptr<Linker>(std::move(linker));
}

}  // namespace hekla::cpu
