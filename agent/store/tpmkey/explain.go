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

// ErrPCRs means that PCRs have other values than when the key was sealed: the
// board has booted other software.
var ErrPCRs = errors.New("the board has booted other software than when the key was sealed: boot the former software, or seal a copy of the key again, or create a new key")

// errOtherTPM means that the TPM has another storage root key.
var errOtherTPM = errors.New("the key was sealed by another TPM, or this one was cleared since: seal a copy of the key, or create a new key")

// sysfs is the kernel's directory of TPMs.
const sysfs = "/sys/class/tpm"

// minTPM2Code is the lowest error code of a TPM 2.0. A TPM 1.2 has lower codes for
// unknown commands.
const minTPM2Code = tpm2.TPMRC(0x80)

// Steps, as errors name them.
const (
	stepRoot    = "create storage root key"
	stepPCRs    = "read PCRs"
	stepSeal    = "seal key"
	stepLoad    = "load sealed key"
	stepSession = "start session"
	stepUnseal  = "unseal key"
)

// stepError is the error of a step.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return e.step + ": " + e.err.Error() }

func (e *stepError) Unwrap() error { return e.err }

// addRemedy appends a remedy to an error of the TPM if one is known. It replaces the error
// of a TPM 1.2.
func addRemedy(err error) error {
	var step *stepError
	if !errors.As(err, &step) {
		return err
	}
	remedy := ""
	var code tpm2.TPMRC
	switch {
	case errors.As(err, &code) && code < minTPM2Code:
		return fmt.Errorf("%s: this is a TPM 1.2, but a TPM 2.0 is required: use a key file or the kernel keyring", step.step)
	case errors.Is(err, tpm2.TPMRCLockout):
		remedy = "the TPM is locked after wrong passwords: wait, or run tpm2_dictionarylockout --clear-lockout"
	case errors.Is(err, tpm2.TPMRCInitialize):
		remedy = "the firmware has not started the TPM: enable it in the firmware, or run tpm2_startup --clear"
	case errors.Is(err, tpm2.TPMRCFailure):
		remedy = "the TPM's self-test failed: power off the board for some seconds; if that does not help, the TPM is broken"
	case (step.step == stepRoot || step.step == stepDefine || step.step == stepUndefine) && (errors.Is(err, tpm2.TPMRCBadAuth) || errors.Is(err, tpm2.TPMRCAuthFail)):
		remedy = "the owner hierarchy has a password: remove it with tpm2_changeauth --object-context=owner"
	case step.step == stepDefine && errors.Is(err, tpm2.TPMRCNVSpace):
		remedy = "the TPM's storage has no room for a counter: delete an unused index with tpm2_nvundefine"
	case errors.Is(err, tpm2.TPMRCHierarchy):
		remedy = "the owner hierarchy is disabled: enable it in the firmware"
	case step.step == stepRoot && (errors.Is(err, tpm2.TPMRCCurve) || errors.Is(err, tpm2.TPMRCAsymmetric) || errors.Is(err, tpm2.TPMRCValue)):
		remedy = "the TPM does not support the elliptic curve P-256: use a key file or the kernel keyring"
	case step.step == stepLoad && (errors.Is(err, tpm2.TPMRCIntegrity) || errors.Is(err, tpm2.TPMRCSize) || errors.Is(err, tpm2.TPMRCInsufficient)):
		remedy = "the private part of the file is not from this TPM: restore the file, or create a new key"
	default:
		return err
	}
	return fmt.Errorf("%w: %s", err, remedy)
}

// addOpenRemedy appends to the error of opening a TPM its reason and a remedy.
// sysfs is the kernel's directory of TPMs.
func addOpenRemedy(err error, sysfs string) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: run as root", err)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	majors, globErr := filepath.Glob(filepath.Join(sysfs, "tpm*", "tpm_version_major"))
	if globErr != nil {
		return errors.Join(err, globErr)
	}
	for _, file := range majors {
		if major, readErr := os.ReadFile(file); readErr == nil && strings.TrimSpace(string(major)) == "1" {
			return fmt.Errorf("%w: this board has a TPM 1.2, but a TPM 2.0 is required: use a key file or the kernel keyring", err)
		}
	}
	return fmt.Errorf("%w: the kernel has found no TPM 2.0: enable it in the firmware or the device tree, and load its driver (such as tpm_tis_spi) before tinylet starts", err)
}
