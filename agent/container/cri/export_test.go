package cri

import (
	"bufio"
	"bytes"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ReadExecAnswer is what a call keeps of a message.
func ReadExecAnswer(data []byte) (stdout, stderr []byte, err error) {
	var out runtimeapi.ExecSyncResponse
	err = readMessage(bufio.NewReader(bytes.NewReader(data)), &out)
	return out.Stdout, out.Stderr, err
}
