/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BASE_SANITIZER_H
#define FOLIOT_BASE_SANITIZER_H

/* Whether this is a build with AddressSanitizer (FL__ASAN) or ThreadSanitizer (FL__TSAN), whichever the compiler. */

#if defined(__SANITIZE_ADDRESS__)
#define FL__ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define FL__TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FL__ASAN 1
#elif __has_feature(thread_sanitizer)
#define FL__TSAN 1
#endif
#endif

#endif
