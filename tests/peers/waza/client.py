import json
import sys
import subprocess

class WazaClient:
    def __init__(self):
        # Start waza jsonrpc server
        self.proc = subprocess.Popen(
            ["waza", "jsonrpc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1
        )
        self.request_id = 0
    
    def send_request(self, method, params):
        self.request_id += 1
        request = {
            "jsonrpc": "2.0",
            "id": self.request_id,
            "method": method,
            "params": params
        }
        
        # Send request
        self.proc.stdin.write(json.dumps(request) + "\n")
        self.proc.stdin.flush()
        
        # Read response
        response_line = self.proc.stdout.readline()
        return json.loads(response_line)
    
    def read_notification(self):
        """Read a notification (non-blocking)."""
        line = self.proc.stdout.readline()
        if line:
            return json.loads(line)
        return None
    
    def close(self):
        self.proc.stdin.close()
        self.proc.wait()

# Usage
client = WazaClient()

# Run an eval
response = client.send_request("eval.run", {
    "path": "/path/to/eval.yaml",
    "executor": "copilot-sdk"
})
print(f"Started run: {response['result']['runId']}")

# Read progress notifications
while True:
    notification = client.read_notification()
    if notification and notification.get("method") == "eval.complete":
        print(f"Run complete: {notification['params']}")
        break

client.close()
