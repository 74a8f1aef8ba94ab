package cni

import (
	"errors"
	"strconv"
)

// Code says what kind of error it is. The specification keeps those below 100
// for itself.
type Code uint

// The codes of the specification, and the one that libcni has for any other
// error.
const (
	CodeIncompatibleVersion Code = 1  // the version of the configuration is not spoken
	CodeUnsupportedField    Code = 2  // a field of the configuration asks for what there is not
	CodeUnknownContainer    Code = 3  // there is no such container, and nothing to clean up
	CodeInvalidEnvironment  Code = 4  // a CNI_ variable is missing or wrong
	CodeIOFailure           Code = 5  // reading or writing
	CodeDecodingFailure     Code = 6  // no JSON, or of another type
	CodeInvalidConfig       Code = 7  // a value of the configuration is wrong
	CodeTryAgainLater       Code = 11 // it will pass: to be called again later
	CodePluginNotAvailable  Code = 50 // STATUS: no container can be attached
	CodeLimitedConnectivity Code = 51 // STATUS: nor may those be connected that are
	CodeInternal            Code = 999
)

// maxQuoted is how much is said of what was given, in bytes.
const maxQuoted = 64

// Error is an error that a runtime is told the kind of.
type Error struct {
	Code Code
	// Msg is short, and the same for all errors of a kind.
	Msg string
	// Details say what, where, why and what to do about it; they may be "".
	Details string
	// Err is the cause, if there is one. Its text is no part of Msg or Details.
	Err error
}

// Error is all that it says.
func (e *Error) Error() string {
	text := e.Msg
	if e.Details != "" {
		text += ": " + e.Details
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// errorFields takes an error apart for the runtime. What wraps an Error is told along
// with it.
func errorFields(err error) (code Code, msg, details string) {
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok:
		return CodeInternal, err.Error(), ""
	case e.Error() != err.Error():
		return e.Code, e.Msg, err.Error()
	case e.Err != nil:
		return e.Code, e.Msg, joinText(e.Details, e.Err.Error())
	}
	return e.Code, e.Msg, e.Details
}

// appendError writes an error for the runtime.
func appendError(dst []byte, version string, err error) []byte {
	code, msg, details := errorFields(err)
	dst = append(dst, `{"cniVersion":`...)
	dst = appendString(dst, version)
	dst = append(dst, `,"code":`...)
	dst = strconv.AppendUint(dst, uint64(code), 10)
	dst = append(dst, `,"msg":`...)
	dst = appendString(dst, msg)
	if details != "" {
		dst = append(dst, `,"details":`...)
		dst = appendString(dst, details)
	}
	return append(dst, "}\n"...)
}

func joinText(a, b string) string {
	if a == "" {
		return b
	}
	return a + ": " + b
}

// quoteShort quotes what was given, cut where it is long.
func quoteShort(text string) string {
	if len(text) > maxQuoted {
		return strconv.Quote(text[:maxQuoted]) + "…"
	}
	return strconv.Quote(text)
}
