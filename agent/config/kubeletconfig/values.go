package kubeletconfig

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// APIVersion and Kind identify the document.
const (
	APIVersion = "kubelet.config.k8s.io/v1beta1"
	Kind       = "KubeletConfiguration"
)

// Values of fields that are enumerations.
const (
	KubeletAuthorizationModeAlwaysAllow KubeletAuthorizationMode = "AlwaysAllow"
	KubeletAuthorizationModeWebhook     KubeletAuthorizationMode = "Webhook"

	GetChangeDetectionStrategy      ResourceChangeDetectionStrategy = "Get"
	TTLCacheChangeDetectionStrategy ResourceChangeDetectionStrategy = "Cache"
	WatchChangeDetectionStrategy    ResourceChangeDetectionStrategy = "Watch"

	NoneMemoryReservationPolicy              MemoryReservationPolicy = "None"
	TieredReservationMemoryReservationPolicy MemoryReservationPolicy = "TieredReservation"

	NeverVerify                  ImagePullCredentialsVerificationPolicy = "NeverVerify"
	NeverVerifyPreloadedImages   ImagePullCredentialsVerificationPolicy = "NeverVerifyPreloadedImages"
	NeverVerifyAllowlistedImages ImagePullCredentialsVerificationPolicy = "NeverVerifyAllowlistedImages"
	AlwaysVerify                 ImagePullCredentialsVerificationPolicy = "AlwaysVerify"

	HairpinNone       = "none"
	HairpinVeth       = "hairpin-veth"
	PromiscuousBridge = "promiscuous-bridge"

	NoneMemoryManagerPolicy   = "None"
	StaticMemoryManagerPolicy = "Static"

	NoneTopologyManagerPolicy           = "none"
	BestEffortTopologyManagerPolicy     = "best-effort"
	RestrictedTopologyManagerPolicy     = "restricted"
	SingleNumaNodeTopologyManagerPolicy = "single-numa-node"
	ContainerTopologyManagerScope       = "container"
	PodTopologyManagerScope             = "pod"
)

// MarshalJSON writes a string, or the nanoseconds if the value was read from an integer.
func (t TimeOrMetaDuration) MarshalJSON() ([]byte, error) {
	if t.SerializeAsString {
		return t.Duration.MarshalJSON()
	}
	return strconv.AppendInt(nil, t.Duration.Duration.Nanoseconds(), 10), nil
}

// UnmarshalJSON reads a duration string, or an integer of nanoseconds.
func (t *TimeOrMetaDuration) UnmarshalJSON(text []byte) error {
	t.SerializeAsString = len(text) > 0 && text[0] == '"'
	if t.SerializeAsString {
		return json.Unmarshal(text, &t.Duration)
	}
	if err := json.Unmarshal(text, &t.Duration.Duration); err != nil {
		return fmt.Errorf("invalid duration %q: %w", text, err)
	}
	return nil
}

// Add parses the text of the flag --vmodule, pattern=N,..., and appends the items.
func (v *VModuleConfiguration) Add(text string) error {
	for item := range strings.SplitSeq(text, ",") {
		if item == "" {
			continue
		}
		pattern, level, ok := strings.Cut(item, "=")
		if !ok || pattern == "" || level == "" || strings.Contains(level, "=") {
			return fmt.Errorf("%q does not have the pattern=N format", item)
		}
		n, err := strconv.ParseUint(level, 10, 31) // fits into int32, as upstream
		if err != nil {
			return fmt.Errorf("verbosity in %q: %w", item, err)
		}
		*v = append(*v, VModuleItem{FilePattern: pattern, Verbosity: VerbosityLevel(n)})
	}
	return nil
}
