package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"

	"github.com/opencontainers/runtime-spec/specs-go/features"
)

// annotationCrun is in the features of crun.
const annotationCrun = "run.oci.crun.version"

// SendsTerminal reports whether a program with the features takes a console socket for a command
// that it waits for. crun does, and runc does not.
func SendsTerminal(f *features.Features) bool { return f.Annotations[annotationCrun] != "" }

// Features returns what the program can do (features.md in the OCI runtime specification). A
// program that does not know the command, such as crun before 1.8 or runc before 1.1, has none
// of the features.
func (p Program) Features(ctx context.Context) (*features.Features, error) {
	out, err := exec.CommandContext(ctx, p[0], append(append([]string{}, p[1:]...), "features")...).Output()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && ctx.Err() == nil:
		return new(features.Features), nil
	case err != nil:
		return nil, fmt.Errorf("read features of %q: %w", p[0], errors.Join(err, context.Cause(ctx)))
	}
	f := new(features.Features)
	if err := json.Unmarshal(out, f); err != nil {
		return nil, fmt.Errorf("decode features of %q: %w", p[0], err)
	}
	return f, nil
}
