"""LiteLLM's proxy in front of the scripted model, which it asks over Chat Completions and over Messages.

    python agent.py --port PORT

No key is asked for, and it needs no network: its list of prices is the one it ships.
"""

import argparse
import asyncio
import json
import os
import tempfile

os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False", "NO_DOCS": "True"}
os.environ["LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"] = "true"  # listens on loopback only

import uvicorn
from scripted_model import start


def model(name, provider, url):
    return {"model_name": name, "litellm_params": {"model": provider, "api_key": "none", "api_base": url}}


async def main(port):
    _server, url = await start()
    models = [
        model("openai", "openai/scripted-openai", f"{url}/v1"),
        model("vllm", "hosted_vllm/scripted-vllm", f"{url}/v1"),
        model("deepseek", "deepseek/scripted-deepseek", f"{url}/v1"),
        model("openrouter", "openrouter/scripted-openrouter", f"{url}/v1"),
        model("anthropic", "anthropic/scripted-openai", url),
    ]
    settings = {"num_retries": 0, "telemetry": False, "request_timeout": 60}
    routing = {"disable_cooldowns": True}
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False) as file:
        json.dump({"model_list": models, "litellm_settings": settings, "router_settings": routing}, file)
    os.environ["CONFIG_FILE_PATH"] = file.name
    from litellm.proxy.proxy_server import app

    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1)
    await uvicorn.Server(config).serve()
    os.unlink(file.name)


arguments = argparse.ArgumentParser()
arguments.add_argument("--port", type=int, required=True)
asyncio.run(main(arguments.parse_args().port))
