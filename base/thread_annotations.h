// What a mutex guards, in words that clang checks when it compiles with -Wthread-safety. They mean
// nothing to other compilers. Most files need only base/mutex.h and DSL_GUARDED_BY.
#pragma once

#if defined(__clang__)
#define DSL_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define DSL_THREAD_ANNOTATION(x)
#endif

// A class whose objects are held and let go, like a mutex. `name` is what messages call it.
#define DSL_CAPABILITY(name) DSL_THREAD_ANNOTATION(capability(name))
// A class that holds a capability from its constructor to its destructor.
#define DSL_SCOPED_CAPABILITY DSL_THREAD_ANNOTATION(scoped_lockable)

// A variable that is read and written only while the mutex is held. Constructors and destructors
// are not checked.
#define DSL_GUARDED_BY(mutex) DSL_THREAD_ANNOTATION(guarded_by(mutex))

// A function whose caller holds these mutexes, or must not hold them. A lambda that reads what is
// guarded needs it too.
#define DSL_REQUIRES(...) DSL_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define DSL_EXCLUDES(...) DSL_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
// A function that takes these mutexes and returns with them held, or lets go of them; without
// arguments: `this`.
#define DSL_ACQUIRE(...) DSL_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define DSL_RELEASE(...) DSL_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
// A function after which the mutex counts as held; without arguments: `this`.
#define DSL_ASSERT_CAPABILITY(...) DSL_THREAD_ANNOTATION(assert_capability(__VA_ARGS__))

// A function whose body is not checked. Say why.
#define DSL_NO_THREAD_SAFETY_ANALYSIS DSL_THREAD_ANNOTATION(no_thread_safety_analysis)
