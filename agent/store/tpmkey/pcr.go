package tpmkey

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// readPCRs returns PCRs of the SHA-256 bank with their current values. Their indexes must
// be ascending. A response of the TPM has one or more of them, the lowest first.
func readPCRs(t transport.TPM, remaining []pcr) ([]pcr, error) {
	var out []pcr
	for len(remaining) > 0 {
		read, err := tpm2.PCRRead{PCRSelectionIn: pcrSelection(remaining)}.Execute(t)
		if err != nil {
			return nil, &stepError{stepPCRs, err}
		}
		values := read.PCRValues.Digests
		if len(values) == 0 {
			return nil, fmt.Errorf("the TPM has no PCR %d in a SHA-256 bank: enable the bank in the firmware (tpm2_pcrallocate), or seal without PCRs", remaining[0].index)
		}
		if len(values) > len(remaining) || countSelected(read.PCRSelectionOut) != len(values) {
			return nil, errors.New("the TPM returned PCRs that were not requested")
		}
		for i, value := range values {
			if len(value.Buffer) != sha256.Size || !selects(read.PCRSelectionOut, remaining[i].index) {
				return nil, errors.New("the TPM returned PCRs that were not requested")
			}
			out = append(out, pcr{remaining[i].index, [sha256.Size]byte(value.Buffer)})
		}
		remaining = remaining[len(values):]
	}
	return out, nil
}

func countSelected(list tpm2.TPMLPCRSelection) (n int) {
	for _, bank := range list.PCRSelections {
		for _, b := range bank.PCRSelect {
			n += bits.OnesCount8(b)
		}
	}
	return n
}

func selects(list tpm2.TPMLPCRSelection, index int) bool {
	for _, bank := range list.PCRSelections {
		if bank.Hash == tpm2.TPMAlgSHA256 && index/8 < len(bank.PCRSelect) && bank.PCRSelect[index/8]&(1<<(index%8)) != 0 {
			return true
		}
	}
	return false
}

// changedPCRs returns an error that wraps ErrPCRs and names the PCRs whose values
// differ from those at sealing.
func (s *Sealed) changedPCRs(t transport.TPM) error {
	now, err := readPCRs(t, s.pcrs)
	if err != nil {
		return err
	}
	var names []string
	for i := range now {
		if now[i] != s.pcrs[i] {
			names = append(names, strconv.Itoa(now[i].index))
		}
	}
	if len(names) == 0 {
		return errors.New("the TPM rejects the key's policy although no PCR differs: a PCR changed meanwhile, or the file is from another TPM")
	}
	return fmt.Errorf("%w: PCR %s", ErrPCRs, strings.Join(names, ", "))
}
