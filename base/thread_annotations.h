// Defines annotations that clang checks with -Wthread-safety. Other compilers ignore them. Most
// files need only base/mutex.h and DSL_GUARDED_BY.
#pragma once

#if defined(__clang__)
#define DSL_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define DSL_THREAD_ANNOTATION(x)
#endif

// Marks a class whose objects can be acquired and released, such as a mutex. Diagnostics call such
// an object `name`.
#define DSL_CAPABILITY(name) DSL_THREAD_ANNOTATION(capability(name))
// Marks a class that holds a capability from its constructor to its destructor.
#define DSL_SCOPED_CAPABILITY DSL_THREAD_ANNOTATION(scoped_lockable)

// Marks a variable that may be read and written only while the mutex is held. Constructors and
// destructors are not checked.
#define DSL_GUARDED_BY(mutex) DSL_THREAD_ANNOTATION(guarded_by(mutex))

// Marks a function whose caller must hold these mutexes. DSL_EXCLUDES marks a function whose caller
// must not hold them. A lambda that accesses guarded data needs the annotation too.
#define DSL_REQUIRES(...) DSL_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define DSL_EXCLUDES(...) DSL_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
// Marks a function that acquires these mutexes and returns with them held; DSL_RELEASE marks a
// function that releases them. Without arguments, the mutex is `this`.
#define DSL_ACQUIRE(...) DSL_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define DSL_RELEASE(...) DSL_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
// Marks a function after which the mutex counts as held. Without arguments, the mutex is `this`.
#define DSL_ASSERT_CAPABILITY(...) DSL_THREAD_ANNOTATION(assert_capability(__VA_ARGS__))

// Marks a function whose body is not checked. A comment at each use gives the reason.
#define DSL_NO_THREAD_SAFETY_ANALYSIS DSL_THREAD_ANNOTATION(no_thread_safety_analysis)
