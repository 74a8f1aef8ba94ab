package tpmkey

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-tpm/tpm2"
)

// ErrPCRs says that the board has booted something else than when the key was
// sealed.
var ErrPCRs = errors.New("the board has booted something else than when the key was sealed: boot what it was, or seal the key anew from a copy of it, or make a new key")

// errOtherTPM says that the storage root key is another one.
var errOtherTPM = errors.New("the key was sealed by another TPM, or this one was cleared since: only a copy of the key, or a new one, helps")

// sysfs is where the kernel tells of TPMs.
const sysfs = "/sys/class/tpm"

// first2 is the least code of an error that a TPM 2.0 answers; a TPM 1.2 has
// lesser ones, for commands that it does not know.
const first2 = tpm2.TPMRC(0x80)

// Steps of the conversation, as errors name them.
const (
	stepRoot    = "make the storage root key"
	stepPCRs    = "read PCRs"
	stepSeal    = "seal"
	stepLoad    = "load the sealed key"
	stepSession = "begin a session"
	stepUnseal  = "unseal"
)

// stepError is an error and what was attempted.
type stepError struct {
	step string
	err  error
}

// Error is the step and its error.
func (e *stepError) Error() string { return e.step + ": " + e.err.Error() }

// Unwrap gives the step's error to errors.Is.
func (e *stepError) Unwrap() error { return e.err }

// explain adds to what a TPM refuses what to do about it.
func explain(err error) error {
	var step *stepError
	if !errors.As(err, &step) {
		return err
	}
	remedy := ""
	var code tpm2.TPMRC
	switch {
	case errors.As(err, &code) && code < first2:
		return fmt.Errorf("%s: this is a TPM 1.2, and a TPM 2.0 is needed: use a key file or the kernel's keyring", step.step)
	case errors.Is(err, tpm2.TPMRCLockout):
		remedy = "it is locked after wrong passwords: wait, or tpm2_dictionarylockout --clear-lockout"
	case errors.Is(err, tpm2.TPMRCInitialize):
		remedy = "the firmware has not started it: enable it there, or tpm2_startup --clear"
	case errors.Is(err, tpm2.TPMRCFailure):
		remedy = "its self-test failed: cut the power of the board for some seconds; if that does not help, it is broken"
	case (step.step == stepRoot || step.step == stepDefine) && (errors.Is(err, tpm2.TPMRCBadAuth) || errors.Is(err, tpm2.TPMRCAuthFail)):
		remedy = "the owner hierarchy has a password, which tinylet does not know: tpm2_changeauth --object-context=owner takes it away"
	case step.step == stepDefine && errors.Is(err, tpm2.TPMRCNVSpace):
		remedy = "its storage has no room for a counter: tpm2_nvundefine an index that nobody needs"
	case errors.Is(err, tpm2.TPMRCHierarchy):
		remedy = "the owner hierarchy is turned off: turn it on in the firmware"
	case step.step == stepRoot && (errors.Is(err, tpm2.TPMRCCurve) || errors.Is(err, tpm2.TPMRCAsymmetric) || errors.Is(err, tpm2.TPMRCValue)):
		remedy = "it has no elliptic curve P-256: use a key file or the kernel's keyring"
	case step.step == stepLoad && (errors.Is(err, tpm2.TPMRCIntegrity) || errors.Is(err, tpm2.TPMRCSize) || errors.Is(err, tpm2.TPMRCInsufficient)):
		remedy = "the file's private part is not what this TPM has made: restore the file, or make a new key"
	default:
		return err
	}
	return fmt.Errorf("%w: %s", err, remedy)
}

// explainOpen says why there is no TPM to speak to. Sysfs is where the kernel
// tells of TPMs.
func explainOpen(err error, sysfs string) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: run it as root", err)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	majors, globErr := filepath.Glob(filepath.Join(sysfs, "tpm*", "tpm_version_major"))
	if globErr != nil {
		return errors.Join(err, globErr)
	}
	for _, file := range majors {
		if major, readErr := os.ReadFile(file); readErr == nil && strings.TrimSpace(string(major)) == "1" {
			return fmt.Errorf("%w: this board's TPM is a TPM 1.2, and a TPM 2.0 is needed: use a key file or the kernel's keyring", err)
		}
	}
	return fmt.Errorf("%w: the kernel knows no TPM 2.0 on this board: enable it in the firmware or the device tree, and load its driver (such as tpm_tis_spi) before tinylet starts", err)
}
