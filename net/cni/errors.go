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
	CodeVersion      Code = 1  // the version of the configuration is not spoken
	CodeUnsupported  Code = 2  // a field of the configuration asks for what there is not
	CodeUnknown      Code = 3  // there is no such container, and nothing to clean up
	CodeEnvironment  Code = 4  // a CNI_ variable is missing or wrong
	CodeIO           Code = 5  // reading or writing
	CodeDecode       Code = 6  // no JSON, or of another type
	CodeConfig       Code = 7  // a value of the configuration is wrong
	CodeTryAgain     Code = 11 // it will pass: to be called again later
	CodeUnavailable  Code = 50 // STATUS: no container can be attached
	CodeDisconnected Code = 51 // STATUS: nor may those be connected that are
	CodeInternal     Code = 999
)

// maxShown is how much is said of what was given, in bytes.
const maxShown = 64

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

// told takes an error apart for the runtime. What wraps an Error is told along
// with it.
func told(err error) (code Code, msg, details string) {
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok:
		return CodeInternal, err.Error(), ""
	case e.Error() != err.Error():
		return e.Code, e.Msg, err.Error()
	case e.Err != nil:
		return e.Code, e.Msg, joined(e.Details, e.Err.Error())
	}
	return e.Code, e.Msg, e.Details
}

// appendError writes an error for the runtime.
func appendError(dst []byte, version string, err error) []byte {
	code, msg, details := told(err)
	dst = append(dst, `{"cniVersion":`...)
	dst = appendText(dst, version)
	dst = append(dst, `,"code":`...)
	dst = strconv.AppendUint(dst, uint64(code), 10)
	dst = append(dst, `,"msg":`...)
	dst = appendText(dst, msg)
	if details != "" {
		dst = append(dst, `,"details":`...)
		dst = appendText(dst, details)
	}
	return append(dst, "}\n"...)
}

func joined(a, b string) string {
	if a == "" {
		return b
	}
	return a + ": " + b
}

// shown quotes what was given, cut where it is long.
func shown(text string) string {
	if len(text) > maxShown {
		return strconv.Quote(text[:maxShown]) + "…"
	}
	return strconv.Quote(text)
}
